#include "storage/swap/lossless_coder.h"

#include <cstring>
#include <random>
#include <vector>

#include "support/catch.h"

namespace dslaunch::test {

using namespace storage;
namespace {

std::vector<std::byte> bytes_of(size_t length, int values) {
    std::mt19937 random(5);
    std::vector<std::byte> bytes(length);
    for (std::byte& byte : bytes)
        byte = static_cast<std::byte>(random() % static_cast<unsigned>(values));
    return bytes;
}

}  // namespace

TEST_CASE("what is compressed expands to the same bytes, however often a coder is used") {
    LosslessCoder coder;
    for (const size_t length : {size_t{1}, size_t{4096}, size_t{1} << 20})
        for (const int values : {1, 2, 256}) {
            INFO(length << " bytes of " << values << " values");
            const std::vector<std::byte> from = bytes_of(length, values);
            std::vector<std::byte> image(length + 1024), back(length);
            const int64_t taken = coder.compress(from, image);
            REQUIRE(taken > 0);
            coder.expand(std::span(image).first(static_cast<size_t>(taken)), back);
            CHECK(back == from);
            // A byte with two possible values carries one bit; the fastest level needs less than
            // two.
            if (length == size_t{1} << 20 && values == 2) CHECK(taken < std::ssize(from) / 4);
        }
}

TEST_CASE("what would not fit is not written") {
    LosslessCoder coder;
    const std::vector<std::byte> noise = bytes_of(4096, 256);
    std::vector<std::byte> image(4095);
    CHECK(coder.compress(noise, image) == 0);
    CHECK(coder.compress(noise, std::span(image).first(0)) == 0);
}

}  // namespace dslaunch::test
