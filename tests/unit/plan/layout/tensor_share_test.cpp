#include "plan/layout/tensor_share.h"

#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

TensorParameter split(std::vector<int64_t> sizes, int64_t dim, std::vector<int64_t> blocks) {
    TensorParameter parameter;
    parameter.name = "weight";
    parameter.sizes = std::move(sizes);
    parameter.rule = TensorRule::kColumn;
    parameter.shard = {dim, std::move(blocks)};
    return parameter;
}

// Returns the elements of a rank's share one by one, by the definition of a shard.
std::vector<int64_t> elements_of(const TensorParameter& parameter, PartOf part) {
    const auto dim = static_cast<size_t>(parameter.shard.dim);
    int64_t numel = 1, inner = 1;
    for (size_t d = 0; d < parameter.sizes.size(); ++d) {
        numel *= parameter.sizes[d];
        if (d > dim) inner *= parameter.sizes[d];
    }
    std::vector<int64_t> elements;
    for (int64_t i = 0; i < numel; ++i) {
        const int64_t at = i / inner % parameter.sizes[dim];
        for (const Range& range : shard_ranges(parameter.shard, part))
            if (at >= range.begin && at < range.end()) elements.push_back(i);
    }
    return elements;
}

}  // namespace

TEST_CASE("elements of a share are where the shard puts them in the whole") {
    for (const TensorParameter& parameter :
         {split({6, 4}, 0, {6}), split({6, 4}, 1, {4}), split({7}, 0, {7}),
          split({3, 5, 2}, 1, {5}), split({9, 2}, 0, {3, 3, 3}), split({2, 8}, 1, {4, 2, 2})})
        for (const int size : {1, 2, 3, 5})
            for (int index = 0; index < size; ++index) {
                const std::vector<int64_t> expected = elements_of(parameter, {index, size});
                const TensorShare share(parameter, {index, size});
                INFO("dim " << parameter.shard.dim << ", rank " << index << " of " << size);
                CHECK(share.numel() == std::ssize(expected));
                // All ranges into which ZeRO may cut the share.
                for (int64_t begin = 0; begin <= share.numel(); ++begin)
                    for (int64_t end = begin; end <= share.numel(); ++end) {
                        std::vector<int64_t> found;
                        int64_t next = begin;
                        share.for_each({begin, end - begin}, [&](int64_t at, const Range& whole) {
                            CHECK(at == next);
                            CHECK(whole.numel > 0);
                            next += whole.numel;
                            for (int64_t i = whole.begin; i < whole.end(); ++i) found.push_back(i);
                        });
                        CHECK((found == std::vector<int64_t>(expected.begin() + begin,
                                                             expected.begin() + end)));
                    }
            }
}

TEST_CASE("a share that lies in one piece is one piece") {
    const TensorShare rows(split({8, 16}, 0, {8}), {1, 2});
    int pieces = 0;
    rows.for_each({0, rows.numel()}, [&](int64_t begin, const Range& whole) {
        ++pieces;
        CHECK(begin == 0);
        CHECK(whole == Range{64, 64});
    });
    CHECK(pieces == 1);
    const TensorShare columns(split({8, 16}, 1, {16}), {1, 2});
    pieces = 0;
    columns.for_each({0, columns.numel()}, [&](int64_t, const Range& whole) {
        CHECK(whole.numel == 8);
        ++pieces;
    });
    CHECK(pieces == 8);
    // A single rank has everything.
    pieces = 0;
    const TensorShare all(split({8, 16}, 1, {8, 8}), {0, 1});
    all.for_each({0, 128}, [&](int64_t, const Range&) { ++pieces; });
    CHECK(pieces == 1);
}

}  // namespace dslaunch
