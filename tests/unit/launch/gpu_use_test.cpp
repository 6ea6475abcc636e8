#include "launch/machine/gpu_use.h"

#include "launch/process/program_output.h"
#include "support/catch.h"

using namespace dslaunch::launch;

TEST_CASE("who holds which GPU is read from nvidia-smi's lines, in bytes") {
    const GpuUse use = parse_gpu_use(
        "0, GPU-a, NVIDIA H100 80GB HBM3, 81559, 2048\n"
        "1, GPU-b, Some, name, with commas, 10, [N/A]\n",
        "GPU-b, 12, 1024\nGPU-a, 7, [N/A]\nGPU-a, 8, 1\n");
    constexpr int64_t kMiB = 1 << 20;
    CHECK(use.gpus == std::vector<Gpu>{{0, "NVIDIA H100 80GB HBM3", 81559 * kMiB, 2048 * kMiB},
                                       {1, "Some, name, with commas", 10 * kMiB, -1}});
    CHECK(use.holds == std::vector<GpuHold>{{1, 12, 1024 * kMiB}, {0, 7, -1}, {0, 8, kMiB}});
}

TEST_CASE("lines of another form, and processes on GPUs that nobody named, are passed over") {
    const GpuUse use = parse_gpu_use(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
        "x, GPU-a, H100, 1, 1\n-1, GPU-b, H100, 1, 1\n2, GPU-c, H100, 99999999999999999, "
        "-4\n\n,,,,",
        "No running processes found\nGPU-z, 3, 4\nGPU-c, x, 1\nGPU-c, 0, 1\nGPU-c, 5, 6, 7\n,,");
    REQUIRE(use.gpus.size() == 1);
    CHECK(use.gpus[0] == Gpu{2, "H100", -1, -1});
    // A fourth field is part of the last.
    CHECK(use.holds == std::vector<GpuHold>{{2, 5, -1}});
    CHECK(parse_gpu_use("", "") == GpuUse{});
}

TEST_CASE("a program that hangs is given up at its limit, and its output counts only whole") {
    using std::chrono::milliseconds;
    CHECK(program_output({"sh", "-c", "echo a; echo b >&2"}, milliseconds(10'000)) == "a\nb\n");
    CHECK(program_output({"sh", "-c", "echo a; sleep 600"}, milliseconds(200)).empty());
    CHECK(program_output({"/nonexistent/program"}, milliseconds(10'000)).empty());
}
