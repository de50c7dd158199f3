// Includes all that kernels know of the machine.
#pragma once

#include "copies.cuh"
#include "launch.cuh"
#include "numbers.cuh"
#include "warp_reduce.cuh"
