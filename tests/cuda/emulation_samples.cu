// Two kernels with faults to choose from, and small ones for what the platform and its emulation offer.
using namespace dacergnn::cuda;

enum Fault {
    kNone,
    kNoBarrierAfterLoad,
    kNoBarrierBeforeLoad,
    kRowTooMany,
    kTileTooLong,
    kExitBeforeBarrier,
    kNoBarrier,
    kBarrierInBranch,
    kMaskOfHalf,
    kMaskWithoutSelf,
    kLanesMissing,
    kHalfTheDistance,
    kTwoPlaces,
};

// y = x @ w in tiles of 16 x 16; x [n, k], w [k, m].
struct Product {
    const float *x, *w;
    float* y;
    int n, k, m, fault;

    __device__ void operator()() const {
        constexpr int T = 16;
        __shared__ float a[T][T + 1];
        float* b = shared_memory<float>();
        const int columns = (m + T - 1) / T, i = threadIdx.x / T, j = threadIdx.x % T;
        const int row = blockIdx.x / columns * T + i, column = blockIdx.x % columns * T + j;
        if (fault == kExitBeforeBarrier && row >= n) return;
        const int end = fault == kRowTooMany ? k + 1 : k;
        float sum = 0;
        for (int first = 0; first < k; first += T) {
            a[i][j] = row < n && first + j < end ? x[row * k + first + j] : 0;
            b[i * T + j] = column < m && first + i < end ? w[(first + i) * m + column] : 0;
            if (fault != kNoBarrierAfterLoad) __syncthreads();
            for (int q = 0; q < (fault == kTileTooLong ? T + 1 : T); ++q) sum += a[i][q] * b[q * T + j];
            if (fault != kNoBarrierBeforeLoad) __syncthreads();
        }
        if (row < n && column < m) y[row * m + column] = sum;
    }
};

// y[block] = sum of the block's 256 elements of x.
struct BlockSum {
    const float* x;
    float* y;
    int fault;

    __device__ void operator()() const {
        __shared__ float part[8];
        float sum = x[blockIdx.x * 256 + threadIdx.x];
        const unsigned mask = fault == kMaskOfHalf ? 0xffffu : fault == kMaskWithoutSelf ? kAll - 2u : kAll;
        if (fault == kLanesMissing && lane() >= 24) return;
        for (int distance = fault == kHalfTheDistance ? 8 : 16; distance > 0; distance /= 2)
            sum += __shfl_down_sync(mask, sum, distance);
        if (lane() == 0) part[warp()] = sum;
        if (fault == kBarrierInBranch && threadIdx.x < 64) {
            __syncthreads();
        }
        if (fault != kNoBarrier) __syncthreads();
        if (warp() != 0) return;
        if (fault == kTwoPlaces && lane() % 2 == 0) {
            sum = warp_sum(0.f);
        } else {
            sum = warp_sum(lane() < 8 ? part[lane()] : 0.f);
        }
        if (lane() == 0) y[blockIdx.x] = sum;
    }
};

// One row of 32 results for each of the functions over a warp.
struct Collectives {
    const int* x;
    int* y;

    __device__ void operator()() const {
        const int l = lane(), v = x[l];
        int row = 0;
        const auto put = [&](int value) { y[row++ * kWarp + l] = value; };
        put(__shfl_sync(kAll, v, (l * 7 + 3) % kWarp));
        put(__shfl_sync(kAll, v, 5, 8));
        put(__shfl_up_sync(kAll, v, 3));
        put(__shfl_up_sync(kAll, v, 3, 16));
        put(__shfl_down_sync(kAll, v, 3));
        put(__shfl_down_sync(kAll, v, 3, 16));
        put(__shfl_xor_sync(kAll, v, 6));
        put(static_cast<int>(__ballot_sync(kAll, v > 0)));
        put(__any_sync(kAll, v > 1000));
        put(__all_sync(kAll, v > -1000));
        put(warp_sum(v));
        put(warp_max(v));
        put(warp_min(v));
        put(static_cast<int>(warp_sum(static_cast<double>(v) / 4) * 4));
        if (l < 8) put(__shfl_xor_sync(0xff, v, 1));
        __syncwarp();
    }
};

// Every thread copies N elements, from and to addresses that may be aligned to an element only.
template <class T, int N>
struct Copies {
    const T* x;
    T* y;
    __device__ void operator()() const {
        store_vector<N>(y + threadIdx.x * N, load_vector<N>(x + threadIdx.x * N));
    }
};

// y = x reversed in groups of 4 by way of shared memory; zeros from `valid` threads on.
struct Asynchronous {
    const float* x;
    float* y;
    int valid;
    bool wait;
    __device__ void operator()() const {
        float* tile = shared_memory<float>();
        const int t = threadIdx.x, last = blockDim.x - 1;
        copy_async16(tile + 4 * t, x + 4 * t, t < valid);
        copy_async_commit();
        copy_async_commit();  // an empty group
        if (wait) copy_async_wait<1>();
        __syncthreads();
        store_vector<4>(y + 4 * t, load_vector<4>(tile + 4 * (last - t)));
    }
};

// The order in which threads run.
struct Order {
    int *count, *order;
    __device__ void operator()() const { order[atomicAdd(count, 1)] = blockIdx.x * 64 + threadIdx.x; }
};

struct Read {
    const float* x;
    float* y;
    int64_t index;
    __device__ void operator()() const {
        if (threadIdx.x == 40) y[blockIdx.x] = x[index];
    }
};

struct SharedAt {
    float* y;
    int write, read;
    __device__ void operator()() const {
        __shared__ int fixed[3];
        float* all = shared_memory<float>();
        if (threadIdx.x != 0) return;
        all[write] = 1;
        y[0] = all[read];
        y[1] = static_cast<float>(fixed[read % 4]);
    }
};

// y[0], each thread in its turn: by plain additions, in one warp after __syncwarp, in a block after a barrier.
struct Turns {
    int* y;
    int synchronise;
    __device__ void operator()() const {
        for (int t = 0; t < static_cast<int>(blockDim.x); ++t) {
            if (t == static_cast<int>(threadIdx.x)) *y += 1;
            if (synchronise == 1) __syncwarp();
            if (synchronise == 2) __syncthreads();
            if (synchronise == 3) __shfl_sync(kAll, t, 0);
        }
    }
};

struct Deep {
    float* y;
    __device__ void operator()() const {
        volatile char local[400000];
        for (int i = 400000; i-- > 0;) local[i] = 1;
        y[threadIdx.x] = local[7];
    }
};

struct Set {
    float* y;
    __device__ void operator()() const {
        if (threadIdx.x == 0) *y = static_cast<float>(blockDim.x);
    }
};

template <class T, int N>
void copies(const void* x, void* y) {
    launch<32>(1, 0, Copies<T, N>{static_cast<const T*>(x), static_cast<T*>(y)});
}

extern "C" {
void product(const float* x, const float* w, float* y, int n, int k, int m, int fault) {
    const int64_t blocks = int64_t(n + 15) / 16 * ((m + 15) / 16);
    launch<256>(blocks, 16 * 16 * sizeof(float), Product{x, w, y, n, k, m, fault});
}
void block_sum(const float* x, float* y, int blocks, int fault) { launch<256>(blocks, 0, BlockSum{x, y, fault}); }
void collectives(const int* x, int* y) { launch<32>(1, 0, Collectives{x, y}); }
void partial_warp(const int* x, int* y) { launch<16>(1, 0, Collectives{x, y}); }
void copies_float_1(const void* x, void* y) { copies<float, 1>(x, y); }
void copies_float_2(const void* x, void* y) { copies<float, 2>(x, y); }
void copies_float_3(const void* x, void* y) { copies<float, 3>(x, y); }
void copies_float_8(const void* x, void* y) { copies<float, 8>(x, y); }
void copies_double_2(const void* x, void* y) { copies<double, 2>(x, y); }
void copies_int16_8(const void* x, void* y) { copies<int16_t, 8>(x, y); }
void asynchronous(const float* x, float* y, int valid, bool wait) {
    launch<64>(1, 64 * 16, Asynchronous{x, y, valid, wait});
}
void order(int* count, int* order, int blocks) { launch<64>(blocks, 0, Order{count, order}); }
void read_at(const float* x, float* y, int64_t index) { launch<64>(3, 0, Read{x, y, index}); }
void shared_at(float* y, int write, int read, int elements) {
    launch<64>(1, elements * sizeof(float), SharedAt{y, write, read});
}
void turns(int* y, int threads, int synchronise) {
    if (threads == 32) launch<32>(1, 0, Turns{y, synchronise});
    if (threads == 64) launch<64>(1, 0, Turns{y, synchronise});
}
void turns_of_blocks(int* y) { launch<1>(2, 0, Turns{y, 0}); }
void deep(float* y) { launch<32>(1, 0, Deep{y}); }
void set(float* y, int64_t blocks, int64_t shared_bytes) {
    launch<96>(blocks, static_cast<std::size_t>(shared_bytes), Set{y});
}
void read_then_set(const float* x, float* y, int64_t index) {
    launch<64>(1, 0, Read{x, y, index});
    launch<96>(1, 0, Set{y});
}
void set_workspace() { launch<96>(1, 0, Set{reinterpret_cast<float*>(call.workspace)}); }
}
