// Comes before all other headers: kernels are plain loops over single elements, for processors without known vectors.
#pragma once

#define DACERGNN_NO_VECTORS
#pragma GCC optimize("no-tree-vectorize")
