#include "storage/export/row_major.h"

#include <cstring>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

CheckpointTensor tensor(std::vector<int64_t> shape, std::vector<int64_t> strides) {
    CheckpointTensor made;
    made.shape = std::move(shape);
    made.strides = std::move(strides);
    return made;
}

}  // namespace

TEST_CASE("the order of memory is that of rows or it is not") {
    CHECK(is_row_major(tensor({2, 3}, {})));
    CHECK(is_row_major(tensor({2, 3}, {3, 1})));
    CHECK_FALSE(is_row_major(tensor({2, 3}, {1, 2})));
    CHECK(is_row_major(tensor({1, 3}, {1, 1})));   // one row: its stride means nothing
    CHECK(is_row_major(tensor({3, 1}, {1, 99})));  // one column
    CHECK(is_row_major(tensor({2, 3}, {8, 2})));   // a file leaves gaps out
    CHECK_FALSE(is_row_major(tensor({2, 3, 4}, {12, 1, 3})));
}

TEST_CASE("elements come in the order of rows, of any permutation of three dimensions") {
    const std::vector<int64_t> shape = {3, 4, 5};
    const std::vector<std::vector<size_t>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (const std::vector<size_t>& order : orders) {
        std::vector<int64_t> strides(3);
        int64_t stride = 1;
        for (size_t i = 3; i-- > 0;) {
            strides[order[i]] = stride;
            stride *= shape[order[i]];
        }
        // Each place in memory has the row-major number of its element.
        std::vector<int32_t> memory(60);
        int32_t number = 0;
        for (int64_t i = 0; i < 3; ++i)
            for (int64_t j = 0; j < 4; ++j)
                for (int64_t k = 0; k < 5; ++k)
                    memory[i * strides[0] + j * strides[1] + k * strides[2]] = number++;
        std::vector<int32_t> rows;
        const CheckpointTensor facts = tensor(shape, strides);
        for_each_row_major(facts, std::as_bytes(std::span(memory)), 4,
                           [&](std::span<const std::byte> part) {
                               const size_t end = rows.size();
                               rows.resize(end + part.size() / 4);
                               std::memcpy(rows.data() + end, part.data(), part.size());
                           });
        REQUIRE(rows.size() == 60);
        for (int32_t i = 0; i < 60; ++i) CHECK(rows[i] == i);
        for (int64_t place = 0; place < 60; ++place) {
            const std::vector<int64_t> index = index_of(facts, place);
            CHECK(memory[place] == index[0] * 20 + index[1] * 5 + index[2]);
        }
    }
}

TEST_CASE("large tensors come in parts") {
    const CheckpointTensor facts = tensor({1024, 1024}, {1, 1024});
    std::vector<float> memory(1 << 20);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
    size_t bytes = 0, parts = 0;
    for_each_row_major(facts, std::as_bytes(std::span(memory)), 4,
                       [&](std::span<const std::byte> part) {
                           CHECK(part.size() <= (size_t{1} << 20));
                           bytes += part.size();
                           ++parts;
                       });
    CHECK(bytes == (size_t{4} << 20));
    CHECK(parts == 4);
}
