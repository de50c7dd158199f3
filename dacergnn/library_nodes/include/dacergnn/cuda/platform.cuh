// All that kernels know of the machine.
#pragma once

#include "copies.cuh"
#include "launch.cuh"
#include "warp_reduce.cuh"
