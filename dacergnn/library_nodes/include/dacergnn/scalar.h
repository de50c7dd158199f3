// Scalar functions that generated traversal bodies use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace dacergnn {

// Maximum and minimum that hand NaN on, as torch does.
template <class T> inline T maximum(T a, T b) { return (a > b || a != a) ? a : b; }
template <class T> inline T minimum(T a, T b) { return (a < b || a != a) ? a : b; }

}  // namespace dacergnn
