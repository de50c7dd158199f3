// Exported models in C++17: memory that frees itself, vectors, and exceptions. It is all in this file:
//
//   #include "model.h"    // what `dacergnn.export` has written, of any name
//   #include "model.hpp"
//   EXPORTED_MODEL(Model, model, MODEL);
//
//   Model model;
//   std::vector<exported::Array> results = model({{features, {rows, 16}}, {edges, {2, count}}});
//
// The second and the third argument of EXPORTED_MODEL are the name of the export, in small and in large letters. Several
// threads may call one model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace exported {

// An error of a model, with its code: MODEL_BAD_INPUT, ...
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string &text) : std::runtime_error(text), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// Returns the name that manifests have for a type.
template <class T>
std::string type_name() {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, long double>);
  if (std::is_same_v<T, bool>) return "bool";
  const char *const kind = std::is_floating_point_v<T> ? "float" : std::is_signed_v<T> ? "int" : "uint";
  return kind + std::to_string(8 * sizeof(T));
}

using Sizes = std::vector<std::int64_t>;

// Returns the number of elements of an array; -1 if there are too many, or if a size is negative.
inline std::int64_t elements(const Sizes &sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0 || (size > 0 && count > std::numeric_limits<std::int64_t>::max() / 16 / size)) return -1;
    count *= size;
  }
  return count;
}

// Shows numbers of somebody else as an array.
struct View {
  template <class T>
  View(const std::vector<T> &numbers, Sizes own) : data(numbers.data()), type(type_name<T>()), sizes(std::move(own)) {
    static_assert(!std::is_same_v<T, bool>, "A vector of bool has no addresses; use the other constructor.");
    if (elements(sizes) != static_cast<std::int64_t>(numbers.size()))
      throw std::invalid_argument("The sizes of an array do not fit its " + std::to_string(numbers.size()) + " numbers.");
  }
  template <class T>
  View(const T *numbers, Sizes own) : data(numbers), type(type_name<T>()), sizes(std::move(own)) {}

  const void *data;
  std::string type;
  Sizes sizes;
};

// A result: numbers of one type.
class Array {
 public:
  Array(const char *label, const char *type, int bytes) : label_(label), type_(type), bytes_(bytes) {}

  const std::string &label() const { return label_; }
  const Sizes &sizes() const { return sizes_; }

  template <class T>
  std::vector<T> numbers() const {
    if (type_name<T>() != type_) throw std::invalid_argument(label_ + " holds numbers of type " + type_ + ".");
    std::vector<T> copy(memory_.size() / sizeof(T));
    if (!copy.empty()) std::memcpy(copy.data(), memory_.data(), memory_.size());
    return copy;
  }

  const void *data() const { return memory_.data(); }
  std::size_t bytes() const { return memory_.size(); }

 private:
  template <class Api>
  friend class Model;

  std::string label_, type_;
  int bytes_;
  Sizes sizes_;
  std::vector<unsigned char> memory_;
};

// A model. `Api` names the functions of a library; see EXPORTED_MODEL.
template <class Api>
class Model {
 public:
  // `weights` is the path of the file of weights, if it lies beside the library.
  explicit Model(const char *weights = nullptr) { check(Api::create(weights, &own_)); }
  ~Model() { Api::destroy(own_); }
  Model(Model &&other) noexcept : own_(std::exchange(other.own_, nullptr)) {}
  Model &operator=(Model &&other) noexcept {
    std::swap(own_, other.own_);
    return *this;
  }

  // Returns the results of a call. `threads` is 0 for as many as there are processors.
  std::vector<Array> operator()(const std::vector<View> &arguments, int threads = 0) const {
    const std::vector<typename Api::Input> inputs = checked(arguments);
    std::vector<typename Api::Output> outputs(Api::outputs, typename Api::Output{});
    std::vector<Array> results;
    for (const auto &form : Api::output_forms()) {
      results.emplace_back(form.label, form.type, form.bytes);
      results.back().sizes_.resize(static_cast<std::size_t>(form.axes));
    }
    // A call that finds too little memory tells sizes: those that follow from the arguments, then the others.
    int code = Api::too_small;
    for (int attempt = 0; code == Api::too_small && attempt < 3; ++attempt) {
      for (std::size_t i = 0; i < results.size(); ++i) {
        Array &own = results[i];
        std::copy_n(outputs[i].sizes, own.sizes_.size(), own.sizes_.begin());
        const std::int64_t count = elements(own.sizes_);
        if (count < 0) throw Error(Api::bad_input, own.label_ + " has too many numbers.");
        own.memory_.resize(static_cast<std::size_t>(count) * static_cast<std::size_t>(own.bytes_));
        outputs[i].data = own.memory_.data();
        outputs[i].bytes = static_cast<std::int64_t>(own.memory_.size());
      }
      code = Api::run(own_, inputs.data(), outputs.data(), threads);
    }
    check(code);
    for (std::size_t i = 0; i < results.size(); ++i)
      std::copy_n(outputs[i].sizes, results[i].sizes_.size(), results[i].sizes_.begin());
    return results;
  }

  std::string processor() const { return Api::processor(own_); }
  void trim() const { Api::trim(own_); }

 private:
  static void check(int code) {
    if (code != 0) throw Error(code, Api::message());
  }

  static std::vector<typename Api::Input> checked(const std::vector<View> &arguments) {
    const auto &forms = Api::input_forms();
    if (arguments.size() != Api::inputs)
      throw std::invalid_argument("The model takes " + std::to_string(Api::inputs) + " arrays.");
    std::vector<typename Api::Input> inputs(Api::inputs, typename Api::Input{});
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const View &own = arguments[i];
      if (own.type != forms[i].type || own.sizes.size() != static_cast<std::size_t>(forms[i].axes))
        throw std::invalid_argument(std::string(forms[i].label) + " needs numbers of type " + forms[i].type + " and " +
                                    std::to_string(forms[i].axes) + " sizes.");
      inputs[i].data = own.data;
      std::copy(own.sizes.begin(), own.sizes.end(), inputs[i].sizes);
    }
    return inputs;
  }

  typename Api::Handle *own_ = nullptr;
};

}  // namespace exported

// Declares a class `Name` for the model that was exported as `prefix`.
#define EXPORTED_MODEL(Name, prefix, PREFIX)                                                            \
  struct Name##Api {                                                                                    \
    using Handle = prefix;                                                                              \
    using Input = prefix##_input;                                                                       \
    using Output = prefix##_output;                                                                     \
    using Form = prefix##_form;                                                                         \
    static constexpr std::size_t inputs = PREFIX##_INPUTS, outputs = PREFIX##_OUTPUTS;                  \
    static constexpr int bad_input = PREFIX##_BAD_INPUT, too_small = PREFIX##_TOO_SMALL;                \
    static const std::vector<Form> &input_forms() {                                                     \
      static const std::vector<Form> forms(PREFIX##_INPUT_FORMS);                                       \
      return forms;                                                                                     \
    }                                                                                                   \
    static const std::vector<Form> &output_forms() {                                                    \
      static const std::vector<Form> forms(PREFIX##_OUTPUT_FORMS);                                      \
      return forms;                                                                                     \
    }                                                                                                   \
    static int create(const char *weights, Handle **made) { return prefix##_create(weights, made); }    \
    static int run(const Handle *own, const Input *arguments, Output *results, int threads) {           \
      return prefix##_run(own, arguments, results, threads);                                            \
    }                                                                                                   \
    static const char *message() { return prefix##_message(); }                                         \
    static const char *processor(const Handle *own) { return prefix##_processor(own); }                 \
    static void trim(const Handle *own) { prefix##_trim(own); }                                         \
    static void destroy(Handle *own) { prefix##_destroy(own); }                                         \
  };                                                                                                    \
  using Name = exported::Model<Name##Api>
