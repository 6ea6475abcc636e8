// libFuzzer entry: reads any bytes as an ssh configuration. The part after the first NUL is a file
// that it includes. The result is directives with known keywords, each with its file and line,
// which are the same after they are written and read again; or it is a usage error that names file
// and line. Only the input is read, and no command runs: this file replaces the C library's glob(),
// and skips inputs that could be a `Match exec`.
#include <fmt/format.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/fd.h"
#include "fuzz/error_checks.h"
#include "launch/transport/ssh/ssh_config.h"
#include "launch/transport/ssh/ssh_target.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launch;

constexpr int kIncludesMax = 24;  // limit of one run, because files that include themselves must
                                  // end

// A file in memory that has a path.
class MemoryFile {
  public:
    MemoryFile()
        : file_(::memfd_create("ssh_config", MFD_CLOEXEC)),
          path_(fmt::format("/proc/self/fd/{}", file_.get())) {
        DSL_CHECK(file_.valid() && ::fchmod(file_.get(), 0600) == 0, "a memory file");
    }
    void hold(std::string_view text) {
        const auto length = static_cast<ssize_t>(text.size());
        DSL_CHECK(::ftruncate(file_.get(), 0) == 0 &&
                      ::pwrite(file_.get(), text.data(), text.size(), 0) == length,
                  "a memory file takes {} bytes", length);
    }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    UniqueFd file_;
    std::string path_;
};

struct Files {
    MemoryFile main, included, written;
    int includes_left = 0;
};
Files& files() {
    static Files all;
    return all;
}

// Returns true if TEXT without quotes and backslashes contains `exec`. Every word that the reader
// finds is a part of this text.
bool may_run_a_command(std::string_view text) {
    std::string bare;
    for (const char c : text) {
        if (c == '"' || c == '\'' || c == '\\') continue;
        bare += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return bare.find("exec") != std::string::npos;
}

SshDirectives read(const std::string& path) {
    SshConfigRequest request;
    request.name = "node1.example";
    request.config_path = path;
    request.home = "/proc/nowhere";
    request.local_user = "me";
    return read_ssh_config(request);
}

bool is_rest_of_line(const std::string& keyword) {
    return keyword == "proxycommand" || keyword == "remotecommand" || keyword == "localcommand" ||
           keyword == "knownhostscommand";
}

std::string written(const std::string& keyword, const SshDirective& directive) {
    std::string text = fmt::format("{} =", keyword);
    for (const std::string& word : directive.words) {
        text += ' ';
        if (is_rest_of_line(keyword)) {
            text += word;
            continue;
        }
        text += '"';
        for (const char c : word) {
            if (c == '"' || c == '\'' || c == '\\') text += '\\';
            text += c;
        }
        text += '"';
    }
    return text + "\n";
}

void check_directives(const SshDirectives& directives, std::string_view text) {
    const auto lines_max = 1 + std::count(text.begin(), text.end(), '\n');
    std::string once;
    for (const auto& [keyword, list] : directives) {
        DSL_CHECK(classify_ssh_keyword(keyword) != SshKeyword::kUnknown, "a known keyword");
        DSL_CHECK(list.size() == 1 || keyword == "identityfile" || keyword == "certificatefile",
                  "{} applies once", keyword);
        for (const SshDirective& directive : list) {
            DSL_CHECK(!directive.words.empty(), "{} has a value", keyword);
            DSL_CHECK(
                directive.file == files().main.path() || directive.file == files().included.path(),
                "a directive of a file that was not given");
            DSL_CHECK(directive.line >= 1 && directive.line <= lines_max, "of a line that is not");
            once += written(keyword, directive);
        }
    }
    files().written.hold(once);
    const SshDirectives again = read(files().written.path());
    DSL_CHECK(again.size() == directives.size(), "as many keywords are read back");
    for (const auto& [keyword, list] : directives) {
        const auto found = again.find(keyword);
        DSL_CHECK(found != again.end() && found->second.size() == list.size(), "{} is read back",
                  keyword);
        for (size_t i = 0; i < list.size(); ++i) {
            DSL_CHECK(found->second[i].words == list[i].words, "{} means the same", keyword);
        }
    }
}

// Resolves the same configuration for this host, as the built-in ssh does.
void try_target(const std::string& path) {
    HostAddress host;
    host.name = "node1.example";
    try {
        const SshTarget target = resolve_ssh_target(host, path);
        DSL_CHECK(target.port >= 1 && target.port <= 65'535, "port {}", target.port);
        DSL_CHECK(target.jumps.empty() || target.proxy_command.empty(), "one way");
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kUsage, "what libssh cannot do is a usage error");
        fuzz::check_shown(error.what());
    }
}

void check_refusal(const Error& error, std::string_view text) {
    DSL_CHECK(error.code() == ExitCode::kUsage, "a bad configuration is a usage error");
    fuzz::check_shown(error.what());
    std::string_view message = error.what();
    if (message.find("Include is nested deeper") != std::string_view::npos) return;
    const std::string& path = message.starts_with(files().main.path() + ":")
                                  ? files().main.path()
                                  : files().included.path();
    DSL_CHECK(message.starts_with(path), "an error does not name its file: {}", message);
    message.remove_prefix(path.size() + 1);
    const size_t line = fuzz::take_number(message);
    const auto lines_max = static_cast<size_t>(1 + std::count(text.begin(), text.end(), '\n'));
    DSL_CHECK(line >= 1 && line <= lines_max, "line {} of {}", line, lines_max);
}

}  // namespace

// Replaces the glob() that the reader's Include calls: finds the input's second part, or both parts
// if the pattern has a star.
extern "C" int glob(const char* pattern, int, int (*)(const char*, int), glob_t* found) noexcept {
    static char* paths[3] = {};
    if (files().includes_left-- <= 0) return GLOB_NOMATCH;
    paths[0] = const_cast<char*>(files().included.path().c_str());
    paths[1] = const_cast<char*>(files().main.path().c_str());
    found->gl_pathv = paths;
    found->gl_pathc = std::string_view(pattern).find('*') == std::string_view::npos ? 1 : 2;
    return 0;
}
extern "C" void globfree(glob_t*) noexcept {}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
    if (may_run_a_command(text)) return 0;
    const size_t cut = std::min(text.find('\0'), text.size());
    files().main.hold(text.substr(0, cut));
    files().included.hold(text.substr(std::min(cut + 1, text.size())));
    files().includes_left = kIncludesMax;
    SshDirectives directives;
    try {
        directives = read(files().main.path());
    } catch (const Error& error) {
        check_refusal(error, text);
        return 0;
    }
    check_directives(directives, text);
    files().includes_left = kIncludesMax;
    try_target(files().main.path());
    return 0;
}
