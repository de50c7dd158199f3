// Turns kernels into plain loops over single elements, for processors with unknown vectors. Comes before all headers.
#pragma once

#define DACERGNN_NO_VECTORS
#pragma GCC optimize("no-tree-vectorize")
