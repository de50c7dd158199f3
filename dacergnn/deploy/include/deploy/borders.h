// The functions of the C interface that may fail, for models of any kind of machine.
#pragma once

#include "arguments.h"

namespace deploy {

template <class Model, class Description>
int create(const Description &own, const char *path, Model **made) {
  return guarded(message(), [&] {
    if (made == nullptr) fail(kBadInput, "The place for the model is null.");
    *made = nullptr;
    *made = new Model(own, path);
  });
}

// Runs a call. `how` is what the last argument of the C interface says.
template <class Model, class How>
int run(const Model *model, const Input *inputs, Output *outputs, How how) {
  int code = kDone;
  const int border = guarded(message(), [&] {
    if (model == nullptr) fail(kBadInput, "The model is null; make one first.");
    if (inputs == nullptr || outputs == nullptr) fail(kBadInput, "The inputs or the outputs are null.");
    code = model->run(inputs, outputs, how, message());
  });
  return border == kDone ? code : border;
}

}  // namespace deploy
