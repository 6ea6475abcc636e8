#include "launch/machine/gpu_use.h"

#include "launch/process/spawn.h"
#include "support/catch.h"

using namespace dslaunch::launch;

TEST_CASE("who holds which GPU is read from nvidia-smi's lines, in bytes") {
    const GpuUse use = parse_gpu_use(
        "0, GPU-a, NVIDIA H100 80GB HBM3, 81559, 2048\n"
        "1, GPU-b, Some, name, with commas, 10, [N/A]\n",
        "GPU-b, 12, 1024\nGPU-a, 7, [N/A]\nGPU-a, 8, 1\n");
    constexpr int64_t kMiB = 1 << 20;
    CHECK(use.gpus ==
          std::vector<Gpu>{{0, "NVIDIA H100 80GB HBM3", 81559 * kMiB, 2048 * kMiB, "GPU-a"},
                           {1, "Some, name, with commas", 10 * kMiB, -1, "GPU-b"}});
    CHECK(use.holds == std::vector<GpuHold>{{1, 12, 1024 * kMiB}, {0, 7, -1}, {0, 8, kMiB}});
}

TEST_CASE("lines of another form, and processes on GPUs that nobody named, are passed over") {
    const GpuUse use = parse_gpu_use(
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
        "x, GPU-a, H100, 1, 1\n-1, GPU-b, H100, 1, 1\n2, GPU-c, H100, 99999999999999999, "
        "-4\n\n,,,,",
        "No running processes found\nGPU-z, 3, 4\nGPU-c, x, 1\nGPU-c, 0, 1\nGPU-c, 5, 6, 7\n,,");
    REQUIRE(use.gpus.size() == 1);
    CHECK(use.gpus[0] == Gpu{2, "H100", -1, -1, "GPU-c"});
    // A fourth field belongs to the third.
    CHECK(use.holds == std::vector<GpuHold>{{2, 5, -1}});
    CHECK(parse_gpu_use("", "") == GpuUse{});
}

TEST_CASE("driver, ECC errors and links are read where they are told") {
    std::vector<Gpu> gpus = {{.index = 0}, {.index = 1}, {.index = 2, .name = "Old"}};
    add_gpu_facts(gpus,
                  "0, 580.65.06, 0, 5, 16, 16\n1, 580.65.06, 3, 5, 8, 16\n"
                  "2, 470.1, [N/A], [N/A], [N/A], [N/A]\n7, 1, 1, 1, 1, 1\nnonsense\n",
                  "GPU 0: NVIDIA H200 (UUID: GPU-a)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 "
                  "GB/s\n\t Link 2: <inactive>\nGPU 9: ?\n\t Link 0: 1 GB/s\nGPU 1: x\n");
    CHECK(gpus[0].driver == "580.65.06");
    CHECK(link_text(gpus[0]) == "2 NVLinks");
    CHECK(fault_of(gpus[0]).empty());
    CHECK(link_text(gpus[1]) == "PCIe 5 x8 of x16");
    CHECK_THAT(fault_of(gpus[1]),
               Catch::StartsWith("GPU 1: ECC could not correct 3 errors in its memory"));
    CHECK(gpus[2].ecc_errors == -1);
    CHECK(link_text(gpus[2]).empty());
    CHECK(fault_of(gpus[2]).empty());
}

TEST_CASE("the facts of a GPU are those of its index or UUID, without one's own hold") {
    GpuUse use = parse_gpu_use("0, GPU-a1, H200, 1024, 10\n1, GPU-b2, H200, 1024, 512\n",
                               "GPU-b2, 12, 256\nGPU-b2, 13, 256\n");
    add_gpu_facts(use.gpus, "1, 580.1, 0, 5, 16, 16\n", "");
    const std::string facts =
        "1.00 GiB, 512.0 MiB in use, driver 580.1, 0 ECC errors, PCIe 5 x16, also used by process "
        "12 (256.0 MiB)";
    CHECK(facts_of_gpu(use, "1", 13) == facts);
    CHECK(facts_of_gpu(use, "GPU-b", 13) == facts);
    CHECK(facts_of_gpu(use, "0", 13) == "1.00 GiB, 10.0 MiB in use");
    CHECK(facts_of_gpu(use, "MIG-c", 13).empty());
    CHECK(facts_of_gpu({}, "", 13).empty());
}

TEST_CASE("a program that hangs is given up at its limit, and its output counts only whole") {
    using std::chrono::milliseconds;
    CHECK(program_output({"sh", "-c", "echo a; echo b >&2"}, milliseconds(10'000)) == "a\nb\n");
    CHECK(program_output({"sh", "-c", "echo a; sleep 600"}, milliseconds(200)).empty());
    CHECK(program_output({"/proc/nonexistent/program"}, milliseconds(10'000)).empty());
}
