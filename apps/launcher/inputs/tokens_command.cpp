// `dslaunch tokens bytes TEXT -o FILE`: writes text as a token file, one uint16 token per byte.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/command_line.h"
#include "base/text/file_faults.h"
#include "base/text/words.h"
#include "launcher/run/commands.h"
#include "storage/disk/output_place.h"
#include "storage/files/atomic_file.h"

namespace dslaunch::launcher {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

struct TokensArguments {
    std::string text, out;
    bool force = false;
};

// Copies TEXT to OUT, each byte as a little-endian uint16. Returns the number of tokens.
int64_t convert(int text, const std::string& text_name, storage::AtomicFile& out) {
    std::vector<std::byte> bytes(kChunkBytes), tokens(2 * kChunkBytes);
    int64_t tokens_total = 0;
    for (;;) {
        const ssize_t count = read_full(text, bytes);
        if (count < 0)
            fail(ExitCode::kInput, "{}: {}", text_name, errno_text(static_cast<int>(-count)));
        if (count == 0) return tokens_total;
        const auto length = static_cast<size_t>(count);
        for (size_t i = 0; i < length; ++i) {
            tokens[2 * i] = bytes[i];
            tokens[2 * i + 1] = std::byte{0};
        }
        out.write(std::span<const std::byte>(tokens).first(2 * length));
        tokens_total += count;
    }
}

int64_t convert_file(const TokensArguments& arguments) {
    const UniqueFd text(arguments.text == "-"
                            ? ::dup(STDIN_FILENO)
                            : ::open(arguments.text.c_str(), O_RDONLY | O_CLOEXEC));
    if (!text.valid()) {
        const std::string cause = errno_text(errno);
        fail(ExitCode::kInput, "{}: {}{}", arguments.text, cause, near_file_text(arguments.text));
    }
    storage::require_new_file(arguments.out, arguments.force);
    struct stat facts {};
    // A pipe has no size, so the disk space that is needed is not known in advance.
    const bool known = ::fstat(text.get(), &facts) == 0 && S_ISREG(facts.st_mode);
    storage::AtomicFile out(arguments.out,
                            Bytes{known ? 2 * static_cast<int64_t>(facts.st_size) : 0});
    const int64_t tokens = convert(text.get(), arguments.text, out);
    if (tokens == 0)
        fail(ExitCode::kInput, "{}: the file is empty, so there are no tokens to write",
             arguments.text);
    out.commit();
    return tokens;
}

// Refuses `tokens kjv.txt` and `tokens bpe kjv.txt`, which people tend to try first.
void refuse_other_form(std::span<const std::string> words) {
    if (words.empty() || words.front() == "bytes" || words.front().starts_with("-")) return;
    const bool is_file = access(words.front().c_str(), F_OK) == 0;
    const std::string file = is_file ? words.front() : words.size() > 1 ? words[1] : "FILE";
    fail(ExitCode::kUsage,
         "tokens: `{0}` is {1}; for one token per byte use `dslaunch tokens bytes {2} -o "
         "{3}`, for the tokens of a model's tokenizer use `dslaunch data prepare {2} "
         "--model FOLDER --context N -o rows.safetensors`",
         printable(words.front()), is_file ? "a file" : "not a kind of tokens", shell_word(file),
         shell_word(file + ".tokens"));
}

}  // namespace

int tokens_command(std::span<const std::string> arguments) {
    TokensArguments parsed;
    CommandLine app({.does = "Turns a text file into a file of tokens, one for each byte.",
                     .examples = {"dslaunch tokens bytes corpus.txt -o corpus.tokens"},
                     .docs = "docs/reference/cli.md"},
                    "dslaunch tokens");
    CommandLine& bytes = app.subcommand(
        "bytes", {.does = "Makes one token from each byte of a text. The vocabulary has 256 "
                          "tokens, and each token is stored as a little-endian uint16.",
                  .examples = {"dslaunch tokens bytes corpus.txt -o corpus.tokens",
                               "zcat corpus.gz | dslaunch tokens bytes - -o corpus.tokens"},
                  .docs = "docs/reference/cli.md"});
    bytes.add("TEXT", parsed.text, "a text file, - for stdin").required();
    bytes.add("-o,--output FILE", parsed.out, "token file to write").required();
    bytes.add("--force", parsed.force, storage::kForceHelp);
    refuse_other_form(arguments);
    if (!app.parse({arguments.begin(), arguments.end()})) return 0;
    log_info("tokens", "wrote {} tokens={}", parsed.out, convert_file(parsed));
    return 0;
}

}  // namespace dslaunch::launcher
