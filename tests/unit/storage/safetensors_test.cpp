#include "storage/files/safetensors.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "support/catch.h"
#include "support/text_tools.h"
#include "support/write_safetensors.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

std::string path_of_test() {
    return "/tmp/dsl_safetensors_test." + std::to_string(::getpid());
}

std::string file_of(const std::string& header, const std::string& data) {
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string safetensors_message_of(const std::string& content) {
    const std::string path = path_of_test();
    write_file(path, content);
    const std::string message = error_of(ExitCode::kInput, [&] { SafetensorsFile file(path); });
    std::remove(path.c_str());
    return message;
}

std::string safetensors_tensor(const std::string& name, const std::string& offsets,
                               const std::string& shape = "[1]",
                               const std::string& dtype = "\"F32\"") {
    return fmt::format(R"("{}":{{"dtype":{},"shape":{},"data_offsets":{}}})", name, dtype, shape,
                       offsets);
}

}  // namespace

TEST_CASE("a written file reads back with names, shapes, bytes and metadata, data 8-byte aligned") {
    const float a[] = {1, 2, 3, 4, 5, 6};
    const uint8_t b[] = {7};
    const SafetensorsEntry entries[] = {{"a", DType::kF32, {2, 3}, std::as_bytes(std::span(a))},
                                        {"empty", DType::kI64, {0, 4}, {}},
                                        {"b", DType::kU8, {}, std::as_bytes(std::span(b))}};
    const std::string path = path_of_test();
    write_safetensors(path, entries, {{"format", "pt"}});
    const SafetensorsFile file(path);
    std::remove(path.c_str());
    REQUIRE(file.metadata().at("format") == "pt");
    REQUIRE(file.entries().size() == 3);
    REQUIRE(file.find("a")->shape == std::vector<int64_t>{2, 3});
    REQUIRE(std::memcmp(file.find("a")->bytes.data(), a, sizeof(a)) == 0);
    REQUIRE(reinterpret_cast<uintptr_t>(file.find("a")->bytes.data()) % 8 == 0);
    REQUIRE(file.find("b")->bytes.size() == 1);
    REQUIRE(file.find("c") == nullptr);
}

TEST_CASE("each hostile safetensors file gets its message") {
    struct Bad {
        std::string content, message;
    };
    const std::string four(4, 'x');
    const Bad table[] = {
        {"", "is empty: the download"},
        {"1234567", "too few"},
        {std::string(8, '\xff'), "does not fit"},
        {std::string("\x09\0\0\0\0\0\0\0{}", 10), "does not fit"},
        {file_of("", ""), "only zero bytes"},
        {file_of(" {}", ""), "does not begin"},
        {file_of("[]", ""), "does not begin"},
        {file_of("{", ""), "not valid JSON"},
        {file_of("{}x", ""), "not valid JSON"},
        {file_of("{\"a\":\"\xff\"}", ""), "not valid JSON"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,4]")) + "," +
                     safetensors_tensor("a", "[0,4]") + "}",
                 four),
         "twice"},
        {file_of("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", ""), "twice"},
        {file_of(fmt::format("{{\"a\":{}{}}}", std::string(300, '['), std::string(300, ']')), ""),
         "too deep"},
        {file_of("{\"a\":1}", ""), "must have exactly"},
        {file_of("{\"a\":{}}", ""), "must have exactly"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0]")) + "}", four),
         "must have exactly"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,4]", "4")) + "}", four),
         "must have exactly"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,4]", "[1]", "7")) + "}", four),
         "must have exactly"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,4]", "[1]", "\"F33\"")) + "}",
                 four),
         "unknown dtype"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,4]", "[-1]")) + "}", four),
         "not a size"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,4]", "[1.0]")) + "}", four),
         "not a size"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[-4,0]")) + "}", four),
         "not a size"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,18446744073709551615]")) + "}",
                 four),
         "not a size"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[4,0]")) + "}", four),
         "are not within the"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,8]", "[2]")) + "}", four),
         "are not within the"},
        {file_of(
             std::string("{").append(safetensors_tensor("a", "[0,4]", "[4294967296,4294967296]")) +
                 "}",
             four),
         "overflows"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,4]", "[2]")) + "}", four),
         "do not match"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[4,8]")) + "}", four + four),
         "leaves a gap"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,4]")) + "," +
                     safetensors_tensor("b", "[0,4]") + "}",
                 four),
         "overlaps"},
        {file_of(std::string("{").append(safetensors_tensor("a", "[0,4]")) + "}", four + "y"),
         "belong to no tensor"},
        {file_of("{\"__metadata__\":1}", ""), "not an object"},
        {file_of("{\"__metadata__\":{\"a\":1}}", ""), "not a string"},
    };
    for (const Bad& bad : table) {
        const std::string message = safetensors_message_of(bad.content);
        INFO("wanted '" << bad.message << "' got '" << message << "'");
        REQUIRE(message.find(bad.message) != std::string::npos);
    }
}

TEST_CASE("a folder that does not exist is a disk error that names the path") {
    try {
        write_safetensors("/proc/nonexistent/x.safetensors", {});
        FAIL("it was written");
    } catch (const Error& error) {
        REQUIRE(error.code() == ExitCode::kDisk);
        REQUIRE(std::string(error.what()).find("/proc/nonexistent/x.safetensors") == 0);
    }
}

TEST_CASE("a tensor that comes in parts, beside others, is the one that comes whole") {
    const std::string path = path_of_test();
    const std::vector<SafetensorsEntry> entries = {
        {"a", DType::kU8, {5}, {}}, {"none", DType::kF32, {0, 3}, {}}, {"b", DType::kU8, {4}, {}}};
    const std::string text = "helloword";
    const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
    SafetensorsWriter writer(path, entries);
    writer.append(0, bytes.first(2));
    writer.write(2, bytes.subspan(5));
    writer.append(0, bytes.subspan(2, 1));
    writer.append(0, bytes.subspan(3, 2));
    writer.commit();
    const SafetensorsFile file(path);
    const auto text_of = [&](const char* name) {
        const auto content = file.find(name)->bytes;
        return std::string(reinterpret_cast<const char*>(content.data()), content.size());
    };
    CHECK(text_of("a") == "hello");
    CHECK(text_of("b") == "word");
    CHECK(file.find("none")->bytes.empty());
    std::remove(path.c_str());
}

TEST_CASE("a tensor's name that is not UTF-8 is refused") {
    const std::vector<SafetensorsEntry> entries = {{"caf\xe9", DType::kU8, {0}, {}}};
    CHECK_THAT(error_of(ExitCode::kInput, [&] { SafetensorsWriter(path_of_test(), entries); }),
               Catch::Contains("the tensor's name `caf\\xe9` is not UTF-8"));
    CHECK_THAT(error_of(ExitCode::kInput,
                        [&] {
                            SafetensorsWriter(path_of_test(), {}, {{"model", "caf\xe9"}});
                        }),
               Catch::Contains("the metadata value `caf\\xe9` is not UTF-8"));
}
