// Runs an exported model in C++17 on the same files as ../c/main.c.
//
//   c++ -std=c++17 -O2 main.cpp -I FOLDER -L FOLDER -lmodel -Wl,-rpath,FOLDER -o main
//   ./main BATCH RESULTS
#include "model.h"
#include "model.hpp"

#include <fstream>
#include <iostream>

EXPORTED_MODEL(Model, model, MODEL);

namespace {

// An argument as it was read: its sizes, and its numbers, aligned for any type.
struct Argument {
  std::int64_t sizes[4];
  std::vector<std::int64_t> memory;
};

Argument read(std::istream &file, const model_form &form) {
  Argument made{};
  file.read(reinterpret_cast<char *>(made.sizes), sizeof made.sizes);
  const std::int64_t count = exported::elements({made.sizes, made.sizes + form.axes});
  if (!file || count < 0) throw std::runtime_error("The file is too short, or a size is out of range.");
  const std::int64_t bytes = count * form.bytes;
  made.memory.resize(static_cast<std::size_t>(bytes / 8 + 1));
  if (!file.read(reinterpret_cast<char *>(made.memory.data()), bytes)) throw std::runtime_error("The file is too short.");
  return made;
}

exported::View view(const Argument &own, const model_form &form) {
  const exported::Sizes sizes(own.sizes, own.sizes + form.axes);
  if (form.type == exported::type_name<float>()) return {reinterpret_cast<const float *>(own.memory.data()), sizes};
  if (form.type == exported::type_name<std::int64_t>()) return {own.memory.data(), sizes};
  throw std::runtime_error(std::string("This program has no arguments of type ") + form.type + ".");
}

void run(const char *batch, const char *results) {
  const Model model;
  std::ifstream file(batch, std::ios::binary);
  if (!file) throw std::runtime_error(std::string(batch) + " cannot be read.");
  std::vector<Argument> arguments;
  std::vector<exported::View> views;
  for (const model_form &form : ModelApi::input_forms()) arguments.push_back(read(file, form));
  for (std::size_t i = 0; i < arguments.size(); ++i) views.push_back(view(arguments[i], ModelApi::input_forms()[i]));

  std::ofstream out(results, std::ios::binary);
  for (const exported::Array &result : model(views)) {
    std::int64_t sizes[4] = {};
    std::copy(result.sizes().begin(), result.sizes().end(), sizes);
    out.write(reinterpret_cast<const char *>(sizes), sizeof sizes);
    out.write(static_cast<const char *>(result.data()), static_cast<std::streamsize>(result.bytes()));
    std::cout << result.label() << ": " << result.bytes() << " bytes\n";
  }
  if (!out.flush()) throw std::runtime_error(std::string(results) + " cannot be written.");
}

}  // namespace

int main(int count, char **arguments) {
  if (count != 3) {
    std::cerr << "main BATCH RESULTS\n";
    return 2;
  }
  try {
    run(arguments[1], arguments[2]);
  } catch (const exported::Error &error) {
    std::cerr << "error " << error.code() << ": " << error.what() << "\n";
    return error.code();
  } catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
