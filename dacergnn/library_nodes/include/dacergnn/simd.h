// Defines hints that a loop is to be vectorized; with DACERGNN_NO_VECTORS they are empty.
#pragma once

#if defined(DACERGNN_NO_VECTORS)
#define DACERGNN_SIMD
#define DACERGNN_SIMD_SUM(sum)
#else
#define DACERGNN_PRAGMA(text) _Pragma(#text)
#define DACERGNN_SIMD DACERGNN_PRAGMA(omp simd)
#define DACERGNN_SIMD_SUM(sum) DACERGNN_PRAGMA(omp simd reduction(+ : sum))
#endif
