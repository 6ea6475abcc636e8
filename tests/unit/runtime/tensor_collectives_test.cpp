// A tensor group over shared memory and links: its ranks' results, compared with sums made by hand.
#include "runtime/compute/tensor_collectives.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <c10/core/ScalarType.h>
#include <malloc.h>

#include <algorithm>

#include "base/clock.h"
#include "support/catch.h"
#include "support/hang.h"
#include "support/world.h"

namespace dslaunch {

using namespace runtime;
namespace {

using Body = std::function<void(graph::TensorGroup& group)>;

// Runs BODY on the ranks of NODE_SIZES, with chunks far smaller than a job's.
std::vector<std::optional<Error>> run_groups(const std::vector<int>& node_sizes, const Body& body) {
    TensorGroupSlices slices{};
    testing::InProcessWorld world({node_sizes, test::kHangTime}, [&](ArenaLayout& arena) {
        slices = add_tensor_group(arena, Bytes{1024});
    });
    return testing::outcomes(world, [&](testing::InProcessRank& self, int) {
        const auto made = make_tensor_group(*self.collectives, slices);
        graph::TensorGroup& group = *made;
        try {
            body(group);
        } catch (const Error& error) {
            self.collectives->poison(error.what());
            throw;
        }
        self.collectives->barrier();
    });
}

// Returns the tensor that RANK contributes.
at::Tensor term(int rank, int64_t numel, at::ScalarType dtype) {
    return ((at::arange(numel, at::kDouble) + 1) * (1.7 + rank)).sin().mul(100).to(dtype);
}

// Returns the sum in the order that the group promises: a host's ranks, then the hosts.
at::Tensor sum_by_hand(const std::vector<int>& node_sizes, int64_t numel, at::ScalarType dtype,
                       bool by_host) {
    const bool narrow = at::isReducedFloatingType(dtype);
    at::Tensor total;
    int rank = 0;
    for (const int size : node_sizes) {
        at::Tensor host;
        for (int i = 0; i < size; ++i, ++rank) {
            const at::Tensor next = term(rank, numel, dtype).to(narrow ? at::kFloat : dtype);
            at::Tensor& into = by_host ? host : total;
            into = into.defined() ? into + next : next;
        }
        if (by_host) total = total.defined() ? total + host : host;
    }
    return total.to(dtype);
}

const std::vector<std::vector<int>> kShapes = {{1}, {2}, {3}, {1, 1}, {1, 1, 1}, {2, 2}, {3, 1}};

// Returns rank 0's median time of a call of EACH, in seconds.
double seconds_of(testing::InProcessRank& self, const std::function<void()>& each) {
    constexpr int kTimes = 41;
    SystemClock clock;
    std::vector<double> seconds;
    for (int i = 0; i < kTimes; ++i) {
        self.collectives->barrier();
        const TimePoint begin = clock.now();
        each();
        seconds.push_back(to_milliseconds(clock.now() - begin) / 1000);
    }
    std::ranges::nth_element(seconds, seconds.begin() + kTimes / 2);
    return seconds[kTimes / 2];
}

}  // namespace

// Judges times, so it needs a machine without other work: `make bench` runs it.
TEST_CASE("a group's sums take no multiple of the time of reduced buckets", "[.bench]") {
    constexpr int64_t kNumel = 1 << 20;
    TensorGroupSlices slices{};
    BucketId bucket{};
    testing::InProcessWorld world({{2}, test::kHangTime}, [&](ArenaLayout& arena) {
        slices = add_tensor_group(arena);
        bucket = arena.add_bucket("reduced", kNumel);
    });
    // A job keeps what it frees (job/process/process_memory.h): results take no new pages.
    ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
    ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
    double copied = 0, summed = 0, halves = 0, gathered = 0, exchanged = 0, shifted = 0;
    double reduced = 0;
    testing::run_world(world, [&](testing::InProcessRank& self, int rank) {
        at::set_num_threads(1);
        const auto made = make_tensor_group(*self.collectives, slices);
        graph::TensorGroup& group = *made;
        const at::Tensor mine = term(rank, kNumel, at::kFloat);
        const std::vector<at::Tensor> parts = mine.chunk(2);
        const auto use = [](auto&&) {};
        const double copy = seconds_of(self, [&] { use(mine.clone()); });
        const double sum = seconds_of(self, [&] { use(group.sum(mine, 0)); });
        const at::Tensor half = term(rank, 2 * kNumel, at::kBFloat16);
        const double half_sum = seconds_of(self, [&] { use(group.sum(half, 0)); });
        const double gather = seconds_of(self, [&] { use(group.gather(mine, 0)); });
        const double exchange = seconds_of(self, [&] { use(group.exchange(parts, 0)); });
        const double shift = seconds_of(self, [&] { use(group.shift(mine, 0)); });
        Generation generation = 0;
        at::Tensor result = at::empty({kNumel});
        // The measured work is autograd's: write, reduce, read.
        const double reduce = seconds_of(self, [&] {
            self.collectives->await_free(bucket, ++generation);
            std::copy_n(mine.const_data_ptr<float>(), kNumel,
                        self.collectives->bucket(bucket).data());
            self.collectives->post(bucket, generation);
            self.collectives->reduce(bucket, generation, 1.0F);
            self.collectives->await_reduced(bucket, generation)
                .copy_to({result.data_ptr<float>(), static_cast<size_t>(kNumel)});
            self.collectives->release(bucket, generation);
        });
        if (rank > 0) return;
        copied = copy, halves = half_sum;
        summed = sum, gathered = gather, exchanged = exchange, shifted = shift, reduced = reduce;
    });
    const auto rate = [](double seconds) {
        return static_cast<double>(kNumel * 4) / seconds / 1e9;
    };
    WARN("GB/s of 4 MiB between two ranks: a copy by each "
         << rate(copied) << "; sum " << rate(summed) << ", of bf16 " << rate(halves) << ", gather "
         << rate(gathered) << ", exchange " << rate(exchanged) << ", shift " << rate(shifted)
         << "; reduced bucket " << rate(reduced));
    CHECK(summed < 3 * reduced);
    CHECK(summed < 2 * copied);
}

TEST_CASE("sums are those of the ranks in order, bit for bit, of any dtype and length") {
    for (const std::vector<int>& sizes : kShapes) {
        const auto thrown = run_groups(sizes, [&](graph::TensorGroup& group) {
            int64_t site = 0;
            for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong})
                // With the last numbers of elements, hosts of one rank sum in shards.
                for (const int64_t numel : {0, 1, 112, 224, 225, 1000, 140'001}) {
                    const at::Tensor mine = term(group.rank(), numel, dtype);
                    const at::Tensor sum = group.sum(mine, site++);
                    const bool floats = dtype == at::kFloat || dtype == at::kBFloat16;
                    const bool by_host = sizes.size() > 1 && floats && numel * 4 >= 1024;
                    if (!sum.equal(sum_by_hand(sizes, numel, dtype, by_host)))
                        fail(ExitCode::kDiverged, "{} elements of {}", numel, at::toString(dtype));
                    if (!mine.equal(term(group.rank(), numel, dtype)))
                        fail(ExitCode::kDiverged, "what was given has changed");
                }
        });
        for (const auto& error : thrown) CHECK(!error);
    }
}

TEST_CASE(
    "maxima, gathered tensors of different shapes, exchanged parts and shifted tensors arrive") {
    for (const std::vector<int>& sizes : kShapes) {
        const auto thrown = run_groups(sizes, [&](graph::TensorGroup& group) {
            const int64_t rows = 3;
            bool fits = true;
            for (const int64_t numel : {500, 140'001}) {
                at::Tensor most = term(0, numel, at::kFloat);
                for (int rank = 1; rank < group.size(); ++rank)
                    most = at::maximum(most, term(rank, numel, at::kFloat));
                fits = fits && group.max(term(group.rank(), numel, at::kFloat), 0).equal(most);
            }
            const auto given = [&](int rank) {
                return term(rank, rows * 100 * rank, at::kFloat).view({rows, 100 * rank});
            };
            const std::vector<at::Tensor> all = group.gather(given(group.rank()), 1);
            fits = fits && std::ssize(all) == group.size();
            for (int rank = 0; rank < group.size(); ++rank)
                fits = fits && all[rank].equal(given(rank));
            const auto part = [&](int from, int to) {
                return term(10 * from + to, 400, at::kFloat).view({20, 20});
            };
            std::vector<at::Tensor> parts;
            for (int to = 0; to < group.size(); ++to) parts.push_back(part(group.rank(), to));
            const std::vector<at::Tensor> mine = group.exchange(parts, 2);
            for (int from = 0; from < group.size(); ++from)
                fits = fits && mine[from].equal(part(from, group.rank()));
            // Tensors that are longer than a chunk, or empty.
            for (const int64_t numel : {900, 1, 0}) {
                const int before = (group.rank() + group.size() - 1) % group.size();
                const at::Tensor theirs = group.shift(term(group.rank(), numel, at::kFloat), 3);
                fits = fits && theirs.equal(term(before, numel, at::kFloat));
            }
            if (!fits) fail(ExitCode::kDiverged, "something else arrived");
        });
        for (const auto& error : thrown) CHECK(!error);
    }
}

TEST_CASE("ranks at different collectives end with the reason") {
    const auto differ = [](const std::vector<int>& sizes, bool shifts) {
        return run_groups(sizes, [&](graph::TensorGroup& group) {
            const at::Tensor mine = at::ones({2});
            static_cast<void>(shifts ? group.shift(mine, group.rank() / 2)
                                     : group.sum(mine, group.rank() / 2));
        });
    };
    for (const std::vector<int>& sizes : {std::vector<int>{3}, {2, 1}}) {
        const auto thrown = differ(sizes, false);
        for (const auto& error : thrown) REQUIRE(error);
        CHECK(thrown[2]->code() == ExitCode::kDiverged);
        CHECK_THAT(thrown[2]->what(), Catch::Contains("their graphs differ"));
        const auto shifting = differ(sizes, true);
        REQUIRE(shifting[2]);
        CHECK_THAT(shifting[2]->what(), Catch::Contains("their graphs differ"));
    }
    // In columns, the first rank that meets a rank at another site notices it. It tells the others,
    // which may still wait.
    for (const std::vector<int>& sizes : {std::vector<int>{1, 1, 1}, {2, 2}})
        for (const bool shifts : {false, true}) {
            const auto thrown = differ(sizes, shifts);
            for (const auto& error : thrown) REQUIRE(error);
            CHECK(std::ranges::any_of(
                thrown, [](const auto& error) { return error->code() == ExitCode::kDiverged; }));
            for (const auto& error : thrown)
                CHECK_THAT(error->what(), Catch::Contains("their graphs differ"));
        }
}

}  // namespace dslaunch
