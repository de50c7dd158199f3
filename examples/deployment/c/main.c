/* Runs an exported model in C: reads the arguments of a call from a file, and writes its results to another one.
 *
 *   cc -std=c11 -O2 main.c -I FOLDER -L FOLDER -lmodel -Wl,-rpath,FOLDER -o main
 *   ./main BATCH RESULTS
 *
 * FOLDER is the folder that `dacergnn.export` has written to. Both files hold arrays in the order of the header: the
 * four sizes of an array (0 for those that it has not) as int64, then its numbers. The exit status is the code of an
 * error of the model. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

static const model_form input_forms[MODEL_INPUTS] = MODEL_INPUT_FORMS;
static const model_form output_forms[MODEL_OUTPUTS] = MODEL_OUTPUT_FORMS;

static void stop(int status, const char *what, const char *text) {
  fprintf(stderr, "%s: %s\n", what, text);
  exit(status);
}

/* Returns the bytes of an array; -1 if a size is negative, or if there are too many. The library checks sizes, too, but
 * it cannot know how much memory there is behind an address. */
static int64_t bytes_of(const model_form *form, const int64_t *sizes) {
  int64_t bytes = form->bytes;
  for (int axis = 0; axis < form->axes; ++axis) {
    if (sizes[axis] < 0 || (sizes[axis] > 0 && bytes > INT64_MAX / sizes[axis])) return -1;
    bytes *= sizes[axis];
  }
  return bytes;
}

static void *memory(int64_t bytes) {
  void *made = (uint64_t)bytes < SIZE_MAX ? malloc(bytes > 0 ? (size_t)bytes : 1) : NULL;
  if (made == NULL) stop(MODEL_NO_MEMORY, "main", "There is no memory.");
  return made;
}

/* Reads the arguments of a call. Their memory belongs to the caller. */
static void read_batch(const char *path, model_input *inputs) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) stop(MODEL_BAD_INPUT, path, "The file cannot be read.");
  for (int i = 0; i < MODEL_INPUTS; ++i) {
    if (fread(inputs[i].sizes, sizeof inputs[i].sizes, 1, file) != 1) stop(MODEL_BAD_INPUT, path, "The file is too short.");
    const int64_t bytes = bytes_of(&input_forms[i], inputs[i].sizes);
    if (bytes < 0) stop(MODEL_BAD_INPUT, input_forms[i].label, "A size is out of range.");
    void *data = memory(bytes);
    if (fread(data, 1, (size_t)bytes, file) != (size_t)bytes) stop(MODEL_BAD_INPUT, path, "The file is too short.");
    inputs[i].data = data;
  }
  fclose(file);
}

static void write_results(const char *path, const model_output *outputs) {
  FILE *file = fopen(path, "wb");
  if (file == NULL) stop(MODEL_BAD_INPUT, path, "The file cannot be written.");
  for (int i = 0; i < MODEL_OUTPUTS; ++i) {
    const size_t bytes = (size_t)bytes_of(&output_forms[i], outputs[i].sizes);
    if (fwrite(outputs[i].sizes, sizeof outputs[i].sizes, 1, file) != 1 ||
        fwrite(outputs[i].data, 1, bytes, file) != bytes)
      stop(MODEL_BAD_INPUT, path, "The file cannot be written.");
    printf("%s:", output_forms[i].label);
    for (int axis = 0; axis < output_forms[i].axes; ++axis)
      printf(" %s%" PRId64, axis ? "x " : "", outputs[i].sizes[axis]);
    printf(" numbers of type %s\n", output_forms[i].type);
  }
  if (fclose(file) != 0) stop(MODEL_BAD_INPUT, path, "The file cannot be written.");
}

/* Runs a call, whose results get as much memory as they need. A call that finds too little memory tells sizes: first
 * those that follow from the arguments, then those that follow from the numbers in these. */
static int run(const model *own, const model_input *inputs, model_output *outputs) {
  int code = MODEL_TOO_SMALL;
  for (int attempt = 0; code == MODEL_TOO_SMALL && attempt < 3; ++attempt) {
    for (int i = 0; i < MODEL_OUTPUTS; ++i) {
      const int64_t bytes = bytes_of(&output_forms[i], outputs[i].sizes);
      if (bytes < 0) stop(MODEL_NO_MEMORY, output_forms[i].label, "The result has too many numbers.");
      if (outputs[i].data != NULL && bytes <= outputs[i].bytes) continue;
      free(outputs[i].data);
      outputs[i].data = memory(bytes);
      outputs[i].bytes = bytes;
    }
    code = model_run(own, inputs, outputs, 0);
  }
  return code;
}

int main(int count, char **arguments) {
  if (count != 3) stop(2, "usage", "main BATCH RESULTS");
  model *own = NULL;
  int code = model_create(NULL, &own); /* the path of the weights, if they lie beside the library */
  if (code != MODEL_DONE) stop(code, "model_create", model_message());
  printf("kernels for %s\n", model_processor(own));

  model_input inputs[MODEL_INPUTS] = {{0}};
  model_output outputs[MODEL_OUTPUTS] = {{0}};
  read_batch(arguments[1], inputs);
  code = run(own, inputs, outputs);
  if (code == MODEL_DONE)
    write_results(arguments[2], outputs);
  else
    fprintf(stderr, "model_run: %s\n", model_message());

  for (int i = 0; i < MODEL_INPUTS; ++i) free((void *)inputs[i].data);
  for (int i = 0; i < MODEL_OUTPUTS; ++i) free(outputs[i].data);
  model_destroy(own);
  return code;
}
