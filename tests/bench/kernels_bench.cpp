// How long the flat CPU kernels take beside memcpy: `ninja bench_kernels && bin/bench_kernels`.
// Prints one JSON line per kernel and thread count; ms is the best of kRuns.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "kernels/flat_optimizer.h"

namespace {

using namespace dslaunch;

constexpr int64_t kNumel = int64_t{64} << 20;
constexpr int kRuns = 9;

// fp32, in plain pages: huge ones are never counted on.
struct Buffer {
    explicit Buffer(float fill) {
        void* start = ::mmap(nullptr, kNumel * sizeof(float), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        DSL_CHECK(start != MAP_FAILED, "not enough memory");
        data = static_cast<float*>(start);
        for (int64_t i = 0; i < kNumel; ++i) data[i] = fill * static_cast<float>(i % 1000 + 1);
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { ::munmap(data, kNumel * sizeof(float)); }

    float* data = nullptr;
};

using Work = std::function<void(int64_t first, int64_t numel)>;

// Runs WORK on equal parts in THREADS threads; prints the best time and what BYTES an element give.
void report(const char* name, int threads, int bytes, const Work& work) {
    double best_s = 1e9;
    for (int run = 0; run < kRuns; ++run) {
        const auto start = std::chrono::steady_clock::now();
        std::vector<std::thread> others;
        const int64_t part = kNumel / threads;
        for (int t = 1; t < threads; ++t) others.emplace_back(work, t * part, part);
        work(0, part);
        for (std::thread& other : others) other.join();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        best_s = std::min(best_s, took.count());
    }
    std::printf(R"({"kernel": "%s", "threads": %d, "ms": %.2f, "GB/s": %.2f})"
                "\n",
                name, threads, best_s * 1e3, static_cast<double>(kNumel) * bytes / best_s / 1e9);
    std::fflush(stdout);
}

void bench(int threads, Isa isa) {
    Buffer p(1e-3F), m(1e-6F), v(1e-9F), g(1e-4F), h(-2e-4F);
    const AdamStep step{.lr = 1e-3, .weight_decay = 1e-2, .step = 3};
    report("memcpy", threads, 8, [&](int64_t first, int64_t numel) {
        std::memcpy(h.data + first, g.data + first, static_cast<size_t>(numel) * sizeof(float));
    });
    for (const size_t source_count : {size_t{1}, size_t{2}}) {
        const int bytes = source_count == 1 ? 28 : 32;
        report(source_count == 1 ? "adam_step 1 source" : "adam_step 2 sources", threads, bytes,
               [&](int64_t first, int64_t numel) {
                   const float* sources[] = {g.data + first, h.data + first};
                   adam_step({.numel = numel,
                              .gradients = std::span(sources, source_count),
                              .gradient_scale = 0.5F,
                              .parameters = p.data + first},
                             step, m.data + first, v.data + first, isa);
               });
    }
    report("adam_step 1 source, bf16 out", threads, 30, [&](int64_t first, int64_t numel) {
        const float* source[] = {g.data + first};
        adam_step({.numel = numel,
                   .gradients = source,
                   .gradient_scale = 0.5F,
                   .parameters = p.data + first,
                   .half_parameters = reinterpret_cast<uint16_t*>(h.data) + first},
                  step, m.data + first, v.data + first, isa);
    });
    report("ordered_sum 2 sources", threads, 12, [&](int64_t first, int64_t numel) {
        const float* sources[] = {g.data + first, h.data + first};
        ordered_sum(sources, 0.5F, p.data + first, numel, isa);
    });
    std::vector<double> squares(static_cast<size_t>(threads));
    report("sum_of_squares", threads, 4, [&](int64_t first, int64_t numel) {
        squares[static_cast<size_t>(first / (kNumel / threads))] =
            sum_of_squares(g.data + first, numel, isa);
    });
    DSL_CHECK(squares[0] > 0, "the gradients are not zero");
}

}  // namespace

int main() {
    std::printf(R"({"isa": "%s", "numel": %ld})"
                "\n",
                isa_name(best_isa()).data(), kNumel);
    for (const int threads : {1, 2}) bench(threads, best_isa());
}
