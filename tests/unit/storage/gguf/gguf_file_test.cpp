#include "storage/gguf/gguf_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

template <typename T>
std::string bytes_of(T number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string text_of(const std::string& text) {
    return bytes_of(uint64_t{text.size()}) + text;
}

// A header with counts.
std::string header(uint64_t tensors, uint64_t values, uint32_t version = 3) {
    return "GGUF" + bytes_of(version) + bytes_of(tensors) + bytes_of(values);
}

std::string tensor(const std::string& name, const std::vector<uint64_t>& extents, uint32_t form,
                   uint64_t begin) {
    std::string all = text_of(name) + bytes_of(static_cast<uint32_t>(extents.size()));
    for (const uint64_t extent : extents) all += bytes_of(extent);
    return all + bytes_of(form) + bytes_of(begin);
}

std::string padded(std::string bytes) {
    bytes.resize((bytes.size() + 31) / 32 * 32, '\0');
    return bytes;
}

std::string fault_of(const std::string& file) {
    return error_of(ExitCode::kInput, [&] {
        static_cast<void>(parse_gguf("x.gguf", std::as_bytes(std::span(file))));
    });
}

}  // namespace

TEST_CASE("a GGUF file that was written reads back with values, shapes, places and bytes") {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/a.gguf";
    GgufValues values;
    values.add("general.architecture", "llama");
    values.add("a.number", int64_t{4'000'000'000});
    values.add("a.factor", 0.5F);
    values.add("a.flag", true);
    values.add("a.texts", std::vector<std::string>{"", "b c", "ü"});
    values.add("a.numbers", std::vector<float>{1, -2});
    values.add("a.kinds", std::vector<int32_t>{3, -1});
    values.add("a.flags", std::vector<bool>{true, false});
    const std::vector<float> odd{1, 2, 3, 4, 5};
    const std::vector<std::byte> block(34, std::byte{7});
    const std::vector<GgufTensor> tensors{{"odd", GgufForm::kF32, {5}, {}},
                                          {"m", GgufForm::kQ8_0, {1, 1, 32}, {}}};
    GgufWriter writer(path, values, tensors);
    writer.append(std::as_bytes(std::span(odd)).subspan(0, 8));
    writer.append(std::as_bytes(std::span(odd)).subspan(8));
    writer.append(block);
    writer.commit();
    const GgufFile file(path);
    CHECK(static_cast<int64_t>(file.file().bytes().size()) == writer.file_bytes());
    const GgufMetadata& read = file.metadata();
    CHECK(read.text("general.architecture") == "llama");
    CHECK(read.integer("a.number") == 4'000'000'000);
    CHECK(read.number("a.factor") == 0.5);
    CHECK(read.flag_or("a.flag", false));
    CHECK(read.texts("a.texts") == std::vector<std::string_view>{"", "b c", "ü"});
    CHECK(read.numbers("a.numbers") == std::vector<double>{1, -2});
    CHECK(read.integers("a.kinds") == std::vector<int64_t>{3, -1});
    CHECK(read.integers("a.flags") == std::vector<int64_t>{1, 0});
    CHECK(read.integer_or("none", 5) == 5);
    REQUIRE(file.content().tensors.size() == 2);
    CHECK(file.content().find("odd")->shape == std::vector<int64_t>{5});
    CHECK(std::memcmp(file.content().find("odd")->bytes.data(), odd.data(), 20) == 0);
    CHECK(file.content().find("m")->shape == std::vector<int64_t>{1, 1, 32});
    CHECK(std::ranges::equal(file.content().find("m")->bytes, block));
    CHECK(reinterpret_cast<uintptr_t>(file.content().find("m")->bytes.data()) % 32 == 0);
    CHECK(file.content().find("none") == nullptr);
    CHECK(is_gguf_file(path));
    CHECK_FALSE(is_gguf_file(folder.path() + "/none"));
    for (const char* key : {"a.flag", "a.texts"}) CHECK_THROWS_AS(read.text(key), Error);
    CHECK(mentions(error_of(ExitCode::kInput, [&] { static_cast<void>(read.integer("none")); }),
                   "a.gguf: the value `none` is missing"));
}

TEST_CASE("an unfinished GGUF file does not appear") {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/a.gguf";
    {
        const std::vector<GgufTensor> tensors{{"odd", GgufForm::kF32, {5}, {}}};
        GgufWriter writer(path, GgufValues(), tensors);
        writer.append(std::vector<std::byte>(4));
    }
    CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a GGUF file that ends anywhere too early is refused by name") {
    const std::string value = text_of("k") + bytes_of(uint32_t{9}) + bytes_of(uint32_t{8}) +
                              bytes_of(uint64_t{2}) + text_of("ab") + text_of("c");
    const std::string whole =
        padded(header(1, 1) + value + tensor("t", {4}, 0, 0)) + std::string(16, '\1');
    CHECK(parse_gguf("x", std::as_bytes(std::span(whole))).tensors.size() == 1);
    for (size_t length = 0; length < whole.size(); ++length) {
        INFO(length);
        CHECK(fault_of(whole.substr(0, length)).starts_with("x.gguf: "));
    }
}

TEST_CASE("hostile GGUF files are refused before their numbers are used") {
    const uint64_t huge = UINT64_MAX;
    const auto value = [](uint32_t type, const std::string& rest) {
        return text_of("k") + bytes_of(type) + rest;
    };
    struct Row {
        std::string file;
        const char* fault;
    };
    const std::string data(64, '\0');
    const Row rows[] = {
        {"GGUX" + std::string(40, '\0'), "not a GGUF file"},
        {header(0, 0, 1), "version 1"},
        {"GGUF" + std::string("\0\0\0\3", 4) + std::string(16, '\0'), "big-endian"},
        {header(huge, 0) + data, "tensors do not fit"},
        {header(0, huge) + data, "of the file: it is truncated or damaged; download or copy"},
        {header(0, 1) + bytes_of(huge) + data, "at most 65535 are possible"},
        {header(0, 1) + value(13, data), "unknown type 13"},
        {header(0, 1) + value(8, bytes_of(huge)) + data, "truncated"},
        {header(0, 1) + value(9, bytes_of(uint32_t{4}) + bytes_of(huge)) + data, "do not fit"},
        {header(0, 1) + value(9, bytes_of(uint32_t{8}) + bytes_of(huge)) + data, "do not fit"},
        {header(0, 1) + value(9, bytes_of(uint32_t{9}) + bytes_of(uint64_t{1})) + data,
         "list of lists"},
        {header(0, 2) + value(0, "a") + value(0, "a") + data, "`k` is there twice"},
        {header(1, 0) + tensor(std::string(300, 'n'), {4}, 0, 0) + data, "at most 255"},
        {padded(header(1, 0) + tensor("t", {1, 1, 1, 1, 1}, 0, 0)) + data, "5 dimensions"},
        {padded(header(1, 0) + tensor("t", {0}, 0, 0)) + data, "empty or too large"},
        {padded(header(1, 0) + tensor("t", {huge / 4, 16}, 0, 0)) + data, "empty or too large"},
        {padded(header(1, 0) + tensor("t", {4}, 16, 0)) + data, "IQ2_XXS (16)"},
        {padded(header(1, 0) + tensor("t", {4}, 99, 0)) + data, "unknown (99)"},
        {padded(header(1, 0) + tensor("t", {33}, 8, 0)) + data, "not a whole number of blocks"},
        {padded(header(1, 0) + tensor("t", {4}, 0, 1)) + data, "not aligned"},
        {padded(header(1, 0) + tensor("t", {4}, 0, uint64_t{1} << 62)) + data, "truncated"},
        {padded(header(1, 0) + tensor("t", {64}, 0, 0)) + data, "truncated"},
        {padded(header(2, 0) + tensor("t", {4}, 0, 0) + tensor("t", {4}, 0, 32)) + data,
         "`t` is there twice"},
        {padded(header(2, 0) + tensor("t", {16}, 0, 0) + tensor("u", {4}, 0, 32)) + data,
         "tensors `t` and `u` overlap"},
        {header(0, 1) + text_of("general.alignment") + bytes_of(uint32_t{4}) +
             bytes_of(uint32_t{3}) + data,
         "power of two"},
    };
    for (const Row& row : rows) {
        INFO(row.fault);
        const std::string fault = fault_of(row.file);
        INFO(fault);
        CHECK(fault.starts_with("x.gguf: "));
        CHECK(mentions(fault, row.fault));
    }
}
