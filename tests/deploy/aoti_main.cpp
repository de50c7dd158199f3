// Runs packages of AOTInductor on batches from files, without Python.
//
// Arguments: a folder, and names of models. The batches of a model are <name>_0.bin, <name>_1.bin, ...; for each of them
// <name>_0.out is written, or <name>_0.error with the text of the exception.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

using Tensors = std::vector<at::Tensor>;
const at::ScalarType kTypes[] = {at::kFloat, at::kLong, at::kDouble, at::kInt};

std::int64_t number(std::istream &file) {
  std::int64_t value = 0;
  file.read((char *)&value, sizeof value);
  return value;
}

Tensors read(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  Tensors tensors;
  for (std::int64_t left = number(file); left > 0; --left) {
    const at::ScalarType type = kTypes[number(file)];
    std::vector<std::int64_t> shape(number(file));
    for (std::int64_t &size : shape) size = number(file);
    tensors.push_back(at::empty(shape, type));
    file.read((char *)tensors.back().data_ptr(), tensors.back().nbytes());
  }
  return tensors;
}

void write(const std::string &path, const Tensors &tensors) {
  std::ofstream file(path, std::ios::binary);
  const auto put = [&](std::int64_t value) { file.write((const char *)&value, sizeof value); };
  put(tensors.size());
  for (const at::Tensor &given : tensors) {
    const at::Tensor tensor = given.contiguous();
    put(std::find(kTypes, kTypes + 4, tensor.scalar_type()) - kTypes);
    put(tensor.dim());
    for (const std::int64_t size : tensor.sizes()) put(size);
    file.write((const char *)tensor.data_ptr(), tensor.nbytes());
  }
}

// Runs all batches by several threads at once; returns whether all get the same numbers as `expected`.
bool same_in_threads(torch::inductor::AOTIModelPackageLoader &loader, const std::vector<Tensors> &batches,
                     const std::vector<Tensors> &expected) {
  std::atomic<bool> same = true;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread)
    threads.emplace_back([&, thread] {
      const c10::InferenceMode guard;
      for (int turn = 0; turn < 20; ++turn) {
        const std::size_t i = (turn + thread) % batches.size();
        const Tensors made = loader.run(batches[i]);
        for (std::size_t k = 0; k < made.size(); ++k)
          if (!at::equal(made[k], expected[i][k])) same = false;
      }
    });
  for (std::thread &thread : threads) thread.join();
  return same;
}

void run(const std::string &folder, const std::string &name) {
  torch::inductor::AOTIModelPackageLoader loader(folder + "/" + name + ".pt2", "model", false, 2);
  std::vector<Tensors> batches, results;
  for (int i = 0;; ++i) {
    const std::string path = folder + "/" + name + "_" + std::to_string(i);
    if (!std::filesystem::exists(path + ".bin")) break;
    const Tensors batch = read(path + ".bin");
    try {
      const Tensors made = loader.run(batch);
      write(path + ".out", made);
      batches.push_back(batch);
      results.push_back(made);
    } catch (const std::exception &error) {
      std::ofstream(path + ".error") << error.what();
    }
  }
  if (!same_in_threads(loader, batches, results)) throw std::runtime_error(name + " differs between threads");
}

int main(int count, char **arguments) {
  const c10::InferenceMode guard;
  const std::string folder = arguments[1];
  for (int i = 2; i < count; ++i)
    if (!dlopen((folder + "/lib" + arguments[i] + "_operators.so").c_str(), RTLD_NOW)) {
      std::cerr << dlerror() << '\n';
      return 1;
    }
  for (int i = 2; i < count; ++i) run(folder, arguments[i]);
  return 0;
}
