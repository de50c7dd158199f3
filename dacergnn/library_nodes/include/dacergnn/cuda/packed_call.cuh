// Calls a CUDA program's function with all its arguments in one array.
#pragma once

#include "../packed_call.h"
#include "platform.cuh"

namespace dacergnn::cuda {

// Calls `function` with arguments whose values `packed` holds in order; then follow the stream, scratch memory and the
// number of multiprocessors. Returns the error of a launch, or null.
template <class... Arguments>
const char* packed_call(void (*function)(Arguments...), const std::int64_t* packed) {
    const std::int64_t* tail = packed + sizeof...(Arguments);
    call = {(cudaStream_t)tail[0], (char*)tail[1], (int)tail[2], nullptr, 0};
    dacergnn::packed_call(function, packed, std::index_sequence_for<Arguments...>{});
    return call.failure;
}

}  // namespace dacergnn::cuda
