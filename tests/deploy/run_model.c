/* Runs one call of an exported model in a process of its own: for processors that an emulator stands for.
   Arguments: the library, a file with the arguments of the call, a file for the results. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { const void *data; int64_t sizes[4]; } input;
typedef struct { void *data; int64_t bytes; int64_t sizes[4]; } output;

static void take(void *to, size_t bytes, FILE *file) {
  if (fread(to, 1, bytes, file) != bytes) abort();
}

static int64_t number(FILE *file) {
  int64_t value;
  take(&value, sizeof value, file);
  return value;
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  void *library = dlopen(arguments[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 3;
  int (*create)(const char *, void **) = (int (*)(const char *, void **))dlsym(library, "model_create");
  int (*run)(const void *, const input *, output *, int) =
      (int (*)(const void *, const input *, output *, int))dlsym(library, "model_run");
  const char *(*message)(void) = (const char *(*)(void))dlsym(library, "model_message");
  const char *(*processor)(const void *) = (const char *(*)(const void *))dlsym(library, "model_processor");
  void (*destroy)(void *) = (void (*)(void *))dlsym(library, "model_destroy");
  void *model;
  if (create(NULL, &model)) return fprintf(stderr, "%s\n", message()), 4;
  FILE *file = fopen(arguments[2], "rb");
  if (!file) return 5;
  const int64_t inputs = number(file), outputs = number(file), capacity = number(file);
  input *given = calloc((size_t)inputs, sizeof *given);
  output *made = calloc((size_t)outputs, sizeof *made);
  for (int64_t i = 0; i < inputs; ++i) {
    const size_t bytes = (size_t)number(file);
    take(given[i].sizes, sizeof given[i].sizes, file);
    void *data = aligned_alloc(64, (bytes + 64) / 64 * 64);
    take(data, bytes, file);
    given[i].data = data;
  }
  fclose(file);
  for (int64_t i = 0; i < outputs; ++i) {
    made[i].data = aligned_alloc(64, (size_t)capacity);
    made[i].bytes = capacity;
  }
  if (run(model, given, made, 2)) return fprintf(stderr, "%s\n", message()), 6;
  printf("%s\n", processor(model));
  file = fopen(arguments[3], "wb");
  for (int64_t i = 0; i < outputs; ++i) {
    fwrite(made[i].sizes, sizeof made[i].sizes, 1, file);
    fwrite(made[i].data, 1, (size_t)capacity, file);
  }
  fclose(file);
  destroy(model);
  return 0;
}
