#include "storage/files/token_file.h"

#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

class TokenPath {
  public:
    explicit TokenPath(const std::string& content) { write_file_atomically(path_, content); }
    ~TokenPath() { std::remove(path_.c_str()); }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_ = "/tmp/dsl_token_test." + std::to_string(::getpid());
};

std::string message_of(const std::string& path, DType dtype) {
    try {
        TokenFile file(path, dtype);
    } catch (const Error& error) {
        REQUIRE(error.code() == ExitCode::kInput);
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("tokens are read at any index, little-endian, in both widths") {
    const TokenPath file(std::string("\x01\x00\xff\xff\x02\x01\x00\x80", 8));
    const TokenFile narrow(file.path(), DType::kU16);
    REQUIRE(narrow.token_count() == 4);
    std::vector<int64_t> three(3);
    narrow.read(1, three);
    REQUIRE(three == std::vector<int64_t>{0xffff, 0x102, 0x8000});
    const TokenFile wide(file.path(), DType::kU32);
    std::vector<int64_t> two(2);
    wide.read(0, two);
    REQUIRE(two == std::vector<int64_t>{0xffff0001, 0x80000102});
}

TEST_CASE("the first token outside the vocabulary is found with its place, across chunks") {
    for (const size_t bad : {size_t{0}, size_t{16383}, size_t{16384}, size_t{40000}}) {
        std::string content(2 * 40001, '\0');
        content[2 * bad + 1] = 1;
        content[2 * 40000 + 1] = 1;
        const TokenPath file(content);
        const TokenFile tokens(file.path(), DType::kU16);
        const auto found = tokens.first_outside(256);
        REQUIRE(found.has_value());
        REQUIRE(found->index == static_cast<int64_t>(bad));
        REQUIRE(found->token == 256);
        REQUIRE(!tokens.first_outside(257).has_value());
    }
}

TEST_CASE("a token file that is missing, empty, odd or a folder says so") {
    REQUIRE(message_of("/nonexistent/x.bin", DType::kU16).find("cannot open") != std::string::npos);
    REQUIRE(message_of("/tmp", DType::kU16).find("not a regular file") != std::string::npos);
    const TokenPath odd("abc");
    REQUIRE(message_of(odd.path(), DType::kU16).find("3 bytes are not") != std::string::npos);
    const TokenPath empty("");
    REQUIRE(message_of(empty.path(), DType::kU16).find("is empty") != std::string::npos);
}
