#include "launch/machine/shared_libraries.h"

#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

// glibc, in all its parts.
constexpr std::array kHostsOwn = {
    "linux-vdso.so",     "ld-linux",    "libc.so.",  "libm.so.",      "libmvec.so.",
    "libpthread.so.",    "libdl.so.",   "librt.so.", "libresolv.so.", "libutil.so.",
    "libanl.so.",        "libnsl.so.1", "libnss_",   "libthread_db.", "libBrokenLocale.",
    "libc_malloc_debug", "libcuda.so",  "libnvidia-"};

// PT_INTERP of this program; the first object that is visited is the program itself.
int take_interpreter(dl_phdr_info* info, size_t, void* text) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        if (info->dlpi_phdr[i].p_type != PT_INTERP) continue;
        *static_cast<std::string*>(text) =
            reinterpret_cast<const char*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
    return 1;
}

std::string read_all(int fd) {
    std::string text;
    std::array<std::byte, 4096> block;
    for (ssize_t n = 1; n > 0;) {
        n = read_full(fd, block);
        if (n > 0) text.append(reinterpret_cast<const char*>(block.data()), static_cast<size_t>(n));
    }
    return text;
}

}  // namespace

std::vector<SharedLibrary> parse_library_list(const std::string& text) {
    std::vector<SharedLibrary> libraries;
    for (const std::string& line : split(text, '\n')) {
        // "\tNAME => PATH (0x…)", "\tNAME => not found", "\tPATH (0x…)"
        const std::string_view entry = trim(line);
        const size_t arrow = entry.find(" => ");
        SharedLibrary library;
        library.name = entry.substr(0, arrow == std::string_view::npos ? entry.find(" (") : arrow);
        if (library.name.empty()) continue;
        library.path = library.name;
        if (arrow != std::string_view::npos) {
            const std::string_view found = entry.substr(arrow + 4);
            library.path = found.substr(0, found.rfind(" ("));
            if (found.starts_with("not found")) library.path.clear();
        }
        library.name.erase(0, library.name.rfind('/') + 1);
        const bool is_hosts_own =
            std::any_of(kHostsOwn.begin(), kHostsOwn.end(),
                        [&](const char* start) { return library.name.starts_with(start); });
        if (!is_hosts_own) libraries.push_back(std::move(library));
    }
    return libraries;
}

std::vector<SharedLibrary> list_libraries(const std::string& file) {
    std::string loader;
    ::dl_iterate_phdr(take_interpreter, &loader);
    if (loader.empty()) fail(ExitCode::kSetup, "this program has no dynamic loader to ask");
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    SpawnRequest request;
    request.command = {loader, file};
    request.environment = own_environment();
    // The loader lists what it would load, "not found" included, and runs nothing, as with ldd.
    set_variable(request.environment, "LD_TRACE_LOADED_OBJECTS", "1");
    request.stdout_fd = out.write_end.get();
    request.stderr_fd = err.write_end.get();
    const SpawnResult result = spawn(request);
    if (result.pid < 0) fail(ExitCode::kSetup, "{}: {}", loader, result.error);
    out.write_end.reset();
    err.write_end.reset();
    const std::string text = read_all(out.read_end.get());  // far less than a pipe holds on stderr
    const std::string complaint = read_all(err.read_end.get());
    int status = 0;
    while (::waitpid(result.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail(ExitCode::kSetup, "{} cannot list the libraries of {}: {}", loader, file,
             printable(trim(complaint)));
    }
    return parse_library_list(text);
}

}  // namespace dslaunch::launch
