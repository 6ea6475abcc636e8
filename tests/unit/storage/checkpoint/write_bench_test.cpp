// The rate at which a file of a checkpoint becomes durable, compared with fio on the same disk, in
// turns. `make bench` runs it (tests/bench/cases.sh). To run it by hand, call test_checkpoint
// '[.bench]' in the folder to be measured.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "storage/checkpoint/shard_writer.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

constexpr int64_t kNumel = int64_t{256} << 20;  // 1 GiB of fp32

template <typename Work>
double gigabytes_a_second(const Work& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return static_cast<double>(kNumel) * 4 / 1e9 / took.count();
}

}  // namespace

TEST_CASE("1 GiB is made durable as fast as the disk takes it", "[.bench]") {
    const auto tree = make_disk_tree();
    Checkpoint checkpoint;
    checkpoint.id = fmt::format("{}", "bench");
    checkpoint.tensors.resize(1);
    checkpoint.tensors[0].name = fmt::format("{}", "w");
    checkpoint.tensors[0].shape = {kNumel};
    std::vector<float> values(static_cast<size_t>(kNumel));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 1e-9F;
    const std::string name = "bench-w.safetensors";
    for (int i = 0; i < 5; ++i) {
        const double ours = gigabytes_a_second([&] {
            ShardWriter writer(*tree, ".", {name, {{0, kWeights, {0, kNumel}}}}, checkpoint);
            writer.write(std::as_bytes(std::span(values)));
            CHECK(writer.finish().pieces.at(0).is_finite);
        });
        tree->remove_file(name);
        int status = 0;
        const double fio = gigabytes_a_second([&] {
            status = std::system(
                "fio --name=w --filename=bench-fio --rw=write --bs=8m --size=1g --direct=1 "
                "--ioengine=libaio --iodepth=2 --end_fsync=1 --fallocate=posix --output=bench-log "
                "--output-format=terse --terse-version=3");
        });
        CHECK(status == 0);
        std::ignore = ::unlink("bench-fio");
        std::printf("dslaunch %.2f GB/s, fio with its start %.2f GB/s; fio says ", ours, fio);
        std::fflush(stdout);
        status = std::system("cut -d';' -f48 bench-log; rm bench-log");
        CHECK(status == 0);
    }
}
