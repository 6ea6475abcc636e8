#include "worker/text/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kFileBytesMax = 4096;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

}  // namespace

std::string read_key_file(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts {};
    if (!file.valid() || ::fstat(file.get(), &facts) != 0)
        fail(ExitCode::kInput, "--api-key-file {}: {}", printable(path), errno_text(errno));
    if (S_ISREG(facts.st_mode) && (facts.st_mode & kOthers) != 0)
        fail(ExitCode::kInput,
             "--api-key-file {}: its mode is {:o}, so that others of this machine may know the "
             "key: `chmod 600` it, and take a new key",
             printable(path), facts.st_mode & 07777);
    std::string text(kFileBytesMax, '\0');
    const ssize_t bytes = read_full(file.get(), std::as_writable_bytes(std::span(text)));
    if (bytes < 0)
        fail(ExitCode::kInput, "--api-key-file {}: {}", printable(path),
             errno_text(static_cast<int>(-bytes)));
    text.resize(static_cast<size_t>(bytes));
    const std::string key(trim(text.substr(0, text.find('\n'))));
    if (key.empty())
        fail(ExitCode::kInput, "--api-key-file {}: its first line is empty", printable(path));
    if (!std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7f; }))
        fail(ExitCode::kInput,
             "--api-key-file {}: its first line has blanks or characters that are not ASCII, which "
             "no client sends in a header; take letters, digits and marks",
             printable(path));
    if (key.size() == text.size() && text.size() == kFileBytesMax)
        fail(ExitCode::kInput, "--api-key-file {}: its first line is longer than {} bytes",
             printable(path), kFileBytesMax - 1);
    return key;
}

}  // namespace dslaunch::worker
