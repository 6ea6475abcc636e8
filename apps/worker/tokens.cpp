// dsworker tokens bytes: text as a token file, one uint16 token a byte.
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "worker/roles.h"

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdio>
#include <vector>

namespace dslaunch {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

// Copies IN to OUT, each byte as a little-endian uint16; the number of tokens. Errors name the two
// files.
int64_t convert(int in, int out, const std::string& in_name, const std::string& out_name) {
    std::vector<std::byte> text(kChunkBytes), tokens(2 * kChunkBytes);
    int64_t tokens_total = 0;
    for (;;) {
        const ssize_t bytes = read_full(in, text);
        if (bytes < 0)
            fail(ExitCode::kInput, "{}: {}", in_name, errno_text(static_cast<int>(-bytes)));
        if (bytes == 0) return tokens_total;
        const size_t length = static_cast<size_t>(bytes);
        for (size_t i = 0; i < length; ++i) {
            tokens[2 * i] = text[i];
            tokens[2 * i + 1] = std::byte{0};
        }
        const int rc = write_full(out, std::span<const std::byte>(tokens).first(2 * length));
        if (rc != 0) fail(ExitCode::kDisk, "{}: {}", out_name, errno_text(-rc));
        tokens_total += bytes;
    }
}

int64_t convert_file(const std::string& in_name, const std::string& out_name) {
    const UniqueFd in(in_name == "-" ? dup(STDIN_FILENO)
                                     : open(in_name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!in.valid()) fail(ExitCode::kInput, "{}: {}", in_name, errno_text(errno));
    const std::string temporary = fmt::format("{}.tmp-{}", out_name, getpid());
    const UniqueFd out(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!out.valid()) fail(ExitCode::kDisk, "{}: {}", out_name, errno_text(errno));
    try {
        const int64_t tokens = convert(in.get(), out.get(), in_name, out_name);
        if (tokens == 0)
            fail(ExitCode::kInput, "{}: empty, so there are no tokens to write", in_name);
        if (fsync(out.get()) != 0 || rename(temporary.c_str(), out_name.c_str()) != 0)
            fail(ExitCode::kDisk, "{}: {}", out_name, errno_text(errno));
        return tokens;
    } catch (...) {
        unlink(temporary.c_str());
        throw;
    }
}

}  // namespace

int tokens_main(int argc, char** argv) {
    CLI::App app("make a token file", "tokens");
    app.require_subcommand(1);
    CLI::App* bytes = app.add_subcommand("bytes", "one token per byte of the text, vocabulary 256");
    std::string in, out;
    bytes->add_option("text", in, "text file, - for stdin")->required();
    bytes->add_option("-o,--out", out, "token file to write: little-endian uint16")->required();
    if (!parse_arguments(app, argc, argv)) return 0;
    log_info("tokens", "wrote {} tokens={}", out, convert_file(in, out));
    return 0;
}

}  // namespace dslaunch
