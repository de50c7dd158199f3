// Launches the kernels of operators that do not wait for each other, so that kernels share launches.
//
// An operator gives a tuple of launches, each of which has to wait for the one before. `start` launches those of
// several operators step by step. In a step, kernels of one type are one launch, and so are kernels that need the same
// room: then no kernel has much less of a multiprocessor than by itself.
#pragma once

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "launch.cuh"

namespace dacergnn::cuda {

// Returns the blocks of so much shared memory for which a multiprocessor of a data center device has room.
constexpr std::size_t blocks_of(std::size_t bytes) { return 228 * 1024 / (bytes + 1024); }

// Returns the fewest blocks that a multiprocessor has room for, if a kernel says so: for threads and shared memory.
template <class Kernel>
constexpr int room() {
    if constexpr (requires { Kernel::kBytes; })
        return std::min<int>(least_blocks<Kernel>(), blocks_of(Kernel::kBytes));
    else
        return least_blocks<Kernel>();
}

// Holds the arguments of `launch`.
template <int Threads_, class Kernel_, int Room = room<Kernel_>()>
struct Launch {
    static constexpr int kThreads = Threads_, kRoom = Room;
    using Kernel = Kernel_;
    int64_t blocks;
    std::size_t shared_bytes;
    Kernel kernel;
};
template <int Threads, class Kernel>
auto one_launch(int64_t blocks, std::size_t shared_bytes, const Kernel& kernel) {
    return std::tuple(Launch<Threads, Kernel>{blocks, shared_bytes, kernel});
}
template <class... Launches>
auto in_order(const Launches&... launches) {
    return std::tuple_cat(launches...);
}

// Runs N kernels of one type: blocks up to ends[0] belong to the first.
template <class Kernel, int N>
struct Several {
    static constexpr int kLeastBlocks = least_blocks<Kernel>();
    Kernel kernels[N];
    int64_t ends[N];

    __device__ void operator()(int64_t block = blockIdx.x) const {
        int n = 0;
        while (block >= ends[n]) ++n;
        kernels[n](n == 0 ? block : block - ends[n - 1]);
    }
};

// Runs kernels of different types. Their code together takes more registers than that of the largest. Kernels of sums
// have no room for that, so they get fewer blocks.
template <class... Kernels>
struct Together {
    __device__ void operator()(int64_t) const {}
};
template <class First, class... Rest>
struct Together<First, Rest...> {
    static constexpr int kLeastBlocks = least_blocks<First>() == 4 ? 3 : least_blocks<First>();
    First first;
    int64_t blocks;
    Together<Rest...> rest;

    __device__ void operator()(int64_t block = blockIdx.x) const {
        if (block < blocks)
            first(block);
        else
            rest(block - blocks);
    }
};

namespace detail {

template <class First, class... Rest>
auto together(const First& first, const Rest&... rest) {
    using Kernel = Together<typename First::Kernel, typename Rest::Kernel...>;
    if constexpr (sizeof...(Rest) == 0)
        return Kernel{first.kernel, first.blocks, {}};
    else
        return Kernel{first.kernel, first.blocks, together(rest...)};
}

// Launches several kernels, of the same type or not, as one; several launches if the arguments do not fit into one.
template <class First, class... Rest>
void launch_as_one(const First& first, const Rest&... rest) {
    constexpr int kThreads = First::kThreads, N = 1 + sizeof...(Rest);
    constexpr std::size_t kSize = sizeof(first.kernel) + (sizeof(rest.kernel) + ... + 0) + 16 * N;
    const int64_t blocks = (first.blocks + ... + rest.blocks);
    const std::size_t bytes = std::max({first.shared_bytes, rest.shared_bytes...});
    if constexpr (N == 1) {
        launch<kThreads>(first.blocks, first.shared_bytes, first.kernel);
    } else if constexpr (kSize > kMostArguments) {
        launch_as_one(first);
        launch_as_one(rest...);
    } else {
        launch<kThreads>(blocks, bytes, together(first, rest...));
    }
}

// Returns kernels of one type as one launch, if its arguments have room for them.
template <class First, class... Rest>
auto merged(const First& first, const Rest&... rest) {
    using Kernel = typename First::Kernel;
    constexpr int N = 1 + sizeof...(Rest);
    if constexpr (N == 1) {
        return std::tuple(first);
    } else if constexpr (sizeof(Several<Kernel, N>) > kMostArguments) {
        return std::tuple(first, rest...);
    } else {
        Launch<First::kThreads, Several<Kernel, N>, First::kRoom> result{0, 0, {{first.kernel, rest.kernel...}, {}}};
        int n = 0;
        for (const First& one : {first, rest...}) {
            result.kernel.ends[n++] = result.blocks += one.blocks;
            result.shared_bytes = std::max(result.shared_bytes, one.shared_bytes);
        }
        return std::tuple(result);
    }
}

template <bool Chosen, class T>
auto if_chosen(const T& value) {
    if constexpr (Chosen)
        return std::tuple(value);
    else
        return std::tuple();
}

// Calls f with the launches that are like the first, then repeats this with the others. Returns the tuples of f as one.
template <template <class, class> class Like, class F, class First, class... Rest>
auto for_each_kind(const F& f, const First& first, const Rest&... rest) {
    const auto like = std::tuple_cat(std::tuple(first), if_chosen<Like<First, Rest>::value>(rest)...);
    const auto others = std::tuple_cat(if_chosen<!Like<First, Rest>::value>(rest)...);
    const auto found = std::apply(f, like);
    if constexpr (std::tuple_size_v<std::remove_const_t<decltype(others)>> == 0)
        return found;
    else
        return std::tuple_cat(
            found, std::apply([&](const auto&... other) { return for_each_kind<Like>(f, other...); }, others));
}

template <class A, class B>
using SameRoom = std::bool_constant<A::kThreads == B::kThreads && A::kRoom == B::kRoom && (A::kRoom > 0) &&
                                    least_blocks<typename A::Kernel>() == least_blocks<typename B::Kernel>()>;

template <class... Launches>
void start_step(const Launches&... launches) {
    const auto distinct = for_each_kind<std::is_same>(
        [](const auto&... same) { return merged(same...); }, launches...);
    std::apply(
        [](const auto&... one) {
            for_each_kind<SameRoom>(
                [](const auto&... alike) {
                    launch_as_one(alike...);
                    return std::tuple();
                },
                one...);
        },
        distinct);
}

template <int Step, class Launches>
auto launches_of_step(const Launches& launches) {
    if constexpr (Step < std::tuple_size_v<Launches>)
        return std::tuple(std::get<Step>(launches));
    else
        return std::tuple();
}

template <int Step = 0, class... Operators>
void start_from(const Operators&... operators) {
    const auto launches = std::tuple_cat(launches_of_step<Step>(operators)...);
    if constexpr (std::tuple_size_v<std::remove_const_t<decltype(launches)>> > 0) {
        std::apply([](const auto&... one) { start_step(one...); }, launches);
        start_from<Step + 1>(operators...);
    }
}

}  // namespace detail

// Launches the kernels of operators that do not wait for each other, and gives their scratch memory back.
template <class... Operators>
void start(const Operators&... operators) {
    detail::start_from(operators...);
    call.taken = 0;
}

}  // namespace dacergnn::cuda
