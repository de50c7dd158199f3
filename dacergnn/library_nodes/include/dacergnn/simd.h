// Hints that a loop is one for vector registers; with DACERGNN_NO_VECTORS there are none.
#pragma once

#if defined(DACERGNN_NO_VECTORS)
#define DACERGNN_SIMD
#define DACERGNN_SIMD_SUM(sum)
#else
#define DACERGNN_PRAGMA(text) _Pragma(#text)
#define DACERGNN_SIMD DACERGNN_PRAGMA(omp simd)
#define DACERGNN_SIMD_SUM(sum) DACERGNN_PRAGMA(omp simd reduction(+ : sum))
#endif
