// All headers of the kernels of processors, which builds read in compiled form where they come first.
#pragma once

#include "formats.h"
#include "packed_call.h"
#include "parallel.h"
#include "scalar.h"
#include "segment_gemm.h"
#include "segment_outer.h"
#include "weight_product.h"
