#include "launch/plan/join_token.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

void check(const std::string& token, const std::string& where) {
    if (token.size() < kTokenBytesMin || token.size() > kTokenBytesMax) {
        fail(ExitCode::kUsage, "{}: a token must have {} to {} characters, but this one has {}; {}",
             where, kTokenBytesMin, kTokenBytesMax, token.size(), kTokenAdvice);
    }
    if (token_bits(token) < kTokenBitsMin) {
        fail(ExitCode::kUsage,
             "{}: this token is too repetitive and could be guessed (it has about {:.0f} bits, but "
             "{} are needed); {}",
             where, token_bits(token), kTokenBitsMin, kTokenAdvice);
    }
}

}  // namespace

double token_bits(std::string_view token) {
    std::array<size_t, 256> counts{};
    for (const char c : token) ++counts[static_cast<unsigned char>(c)];
    double bits = 0;
    for (const size_t count : counts) {
        if (count == 0) continue;
        const double share = static_cast<double>(count) / static_cast<double>(token.size());
        bits -= static_cast<double>(count) * std::log2(share);
    }
    return bits;
}

std::string make_token() {
    std::array<unsigned char, 32> bytes{};
    if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
        fail(ExitCode::kSetup, "cannot get random bytes for a token");
    }
    return hex_text(std::as_bytes(std::span(bytes)));
}

std::string read_token_file(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid()) {
        const int error_number = errno;
        fail(ExitCode::kUsage, "token file {}: {}; {}", printable(path), errno_text(error_number),
             kTokenAdvice);
    }
    struct stat status {};
    if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
        fail(ExitCode::kUsage, "token file {}: it is not a plain file", printable(path));
    }
    if ((status.st_mode & 077) != 0) {
        fail(ExitCode::kUsage,
             "token file {}: other users have access to it (mode {:03o}); run chmod 600 {}",
             printable(path), status.st_mode & 0777, printable(path));
    }
    std::array<std::byte, kTokenBytesMax + 64> bytes{};
    const ssize_t length = read_full(file.get(), bytes);
    if (length < 0) {
        fail(ExitCode::kUsage, "token file {}: {}", printable(path),
             errno_text(static_cast<int>(-length)));
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                                static_cast<size_t>(length));
    std::string token(trim(text));
    check(token, "token file " + printable(path));
    return token;
}

std::string take_token_variable() {
    char* value = std::getenv(kTokenVariable);
    if (value == nullptr) return {};
    std::string token = value;
    ::explicit_bzero(value, token.size());
    ::unsetenv(kTokenVariable);
    return token;
}

std::string choose_token(const std::string& variable, const std::string& file) {
    if (!file.empty()) return read_token_file(file);
    if (!variable.empty()) check(variable, kTokenVariable);
    return variable;
}

}  // namespace dslaunch::launch
