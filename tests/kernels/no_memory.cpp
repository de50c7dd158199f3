// A thread of OpenMP that finds no memory makes the calling thread throw.
#include <cstdio>

#include "dacergnn/parallel.h"

int main() {
    struct Tag;
    omp_set_num_threads(2);
    try {
        dacergnn::run_blocks(8, false, [](int64_t) { dacergnn::scratch<Tag, char>(int64_t{1} << 60); });
    } catch (const std::bad_alloc&) {
        std::puts("no memory");
        return 0;
    }
    return 1;
}
