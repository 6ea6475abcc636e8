#include "launch/machine/elf_needs.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <span>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kElfTableBytesMax = 64U << 20;

class ElfFile {
  public:
    explicit ElfFile(const std::string& path)
        : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        if (!file_.valid()) fail(ExitCode::kSetup, "{}: {}", path, errno_text(errno));
        header_ = read_one<Elf64_Ehdr>(0);
        if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 ||
            header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB ||
            header_.e_shentsize != sizeof(Elf64_Shdr)) {
            fail(ExitCode::kSetup, "{} is not a 64-bit ELF file", path);
        }
        const std::string bytes =
            read_bytes(header_.e_shoff, uint64_t{header_.e_shnum} * sizeof(Elf64_Shdr));
        sections_.resize(header_.e_shnum);
        std::memcpy(sections_.data(), bytes.data(), bytes.size());
    }

    // The file's first section of one type, and the string section that it refers to.
    struct Table {
        std::string bytes;
        std::string strings;
        [[nodiscard]] std::string text(uint64_t at) const {
            return at < strings.size() ? std::string(strings.c_str() + at) : std::string();
        }
    };
    [[nodiscard]] Table table(uint32_t type) const {
        for (const Elf64_Shdr& section : sections_) {
            if (section.sh_type != type || section.sh_link >= sections_.size()) continue;
            const Elf64_Shdr& strings = sections_[section.sh_link];
            return {read_bytes(section.sh_offset, section.sh_size),
                    read_bytes(strings.sh_offset, strings.sh_size)};
        }
        return {};
    }

  private:
    [[nodiscard]] std::string read_bytes(uint64_t offset, uint64_t length) const {
        if (length > kElfTableBytesMax)
            fail(ExitCode::kSetup, "{}: an ELF table is too large", path_);
        std::string bytes(length, '\0');
        const ssize_t n =
            ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (n != static_cast<ssize_t>(length)) {
            fail(ExitCode::kSetup, "{} is truncated or is not an ELF file", path_);
        }
        return bytes;
    }
    template <typename T>
    [[nodiscard]] T read_one(uint64_t offset) const {
        T value{};
        const std::string bytes = read_bytes(offset, sizeof value);
        std::memcpy(&value, bytes.data(), sizeof value);
        return value;
    }

    std::string path_;
    UniqueFd file_;
    Elf64_Ehdr header_{};
    std::vector<Elf64_Shdr> sections_;
};

template <typename T>
bool read_at(const std::string& bytes, uint64_t offset, T& value) {
    if (offset > bytes.size() || bytes.size() - offset < sizeof value) return false;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return true;
}

std::vector<std::string> places(const std::string& list, const std::string& path) {
    constexpr std::string_view kOrigin[] = {"$ORIGIN", "${ORIGIN}"};
    const std::string own_folder = fs::path(path).parent_path().string();
    std::vector<std::string> folders;
    for (std::string folder : split(list, ':')) {
        for (const std::string_view word : kOrigin) {
            if (folder.starts_with(word)) folder = own_folder + folder.substr(word.size());
        }
        if (folder.starts_with('/'))
            folders.push_back(fs::path(folder).lexically_normal().string());
    }
    return folders;
}

// Returns the newest version, such as "GLIBC_2.34", among the versions that the file asks for.
std::string newest_glibc(const ElfFile::Table& versions) {
    constexpr std::string_view kPrefix = "GLIBC_";
    std::string newest;
    Elf64_Verneed need{};
    for (uint64_t at = 0; read_at(versions.bytes, at, need); at += need.vn_next) {
        Elf64_Vernaux entry{};
        uint64_t entry_at = at + need.vn_aux;
        for (int i = 0; i < need.vn_cnt && read_at(versions.bytes, entry_at, entry); ++i) {
            const std::string name = versions.text(entry.vna_name);
            entry_at += entry.vna_next;
            // GLIBC_PRIVATE is not a version.
            if (!name.starts_with(kPrefix) || !std::isdigit(name[kPrefix.size()])) continue;
            const std::string version = name.substr(kPrefix.size());
            if (::strverscmp(version.c_str(), newest.c_str()) > 0) newest = version;
        }
        if (need.vn_next == 0) break;
    }
    return newest;
}

void add_libraries(const std::string& path, std::set<std::string>& found) {
    const ElfNeeds needs = read_elf_needs(path);
    for (const std::string& library : needs.libraries) {
        for (const std::string& folder : needs.folders) {
            std::error_code error;
            const std::string candidate = folder + "/" + library;
            if (!fs::exists(candidate, error)) continue;
            if (found.insert(candidate).second) add_libraries(candidate, found);
            break;
        }
    }
}

// The libraries of glibc and of the GPU driver. Every host has its own versions of them.
constexpr std::array kHostsOwn = {
    "linux-vdso.so",     "ld-linux",    "libc.so.",  "libm.so.",      "libmvec.so.",
    "libpthread.so.",    "libdl.so.",   "librt.so.", "libresolv.so.", "libutil.so.",
    "libanl.so.",        "libnsl.so.1", "libnss_",   "libthread_db.", "libBrokenLocale.",
    "libc_malloc_debug", "libcuda.so",  "libnvidia-"};

// Stores this program's PT_INTERP in TEXT. The first object that is visited is this program.
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

// A rule for libraries that another library opens with dlopen, so that no ELF header names them.
// Source: the calls of dlopen in torch 2.11 for CUDA 13, cuDNN 9 and nvrtc 13. On a host, such a
// library is found beside its opener, or through the RPATH of dsworker (nvrtc has no RPATH).
struct OpeningRule {
    std::string_view opener;  // start of a name
    std::string_view opened;  // start of names in the same folder
};
constexpr std::array<OpeningRule, 4> kOpeningRules = {{
    {"libcudnn.so.", "libcudnn_"},               // its parts: graph, ops, cnn, engines, …
    {"libnvrtc.so.", "libnvrtc-builtins.so."},   // what a compiled kernel includes
    {"libtorch_cuda.so", "libcaffe2_nvrtc.so"},  // kernels that are compiled at run time
    {"libtorch_cuda.so", "libtorch_cuda_linalg.so"},
}};

// Returns true if OPENER opens NAME by RULE. If NAME is a part of cuDNN, it must end with cuDNN's
// version. Otherwise it must have no version, or a version of the form MAJOR.MINOR. A name with a
// longer version is ignored, because it is a link to a library that also has a shorter name.
bool is_opened(const OpeningRule& rule, const std::string& opener, const std::string& name) {
    if (!opener.starts_with(rule.opener) || !name.starts_with(rule.opened)) return false;
    if (rule.opened.ends_with('_')) return name.ends_with(opener.substr(opener.find(".so.")));
    const std::string version = name.substr(rule.opened.size());
    return std::ranges::count(version, '.') == (version.empty() ? 0 : 1) &&
           std::ranges::all_of(version, [](char c) { return is_digit(c) || c == '.'; });
}

// Returns the libraries beside LIBRARY that it opens while it runs, sorted by name.
std::vector<SharedLibrary> opened_by(const SharedLibrary& library) {
    std::vector<SharedLibrary> opened;
    const auto opens = [&](const std::string& name) {
        return std::ranges::any_of(kOpeningRules, [&](const OpeningRule& rule) {
            return is_opened(rule, library.name, name);
        });
    };
    const bool is_opener = std::ranges::any_of(kOpeningRules, [&](const OpeningRule& rule) {
        return library.name.starts_with(rule.opener);
    });
    if (!is_opener || library.path.empty()) return opened;
    std::error_code error;
    for (fs::directory_iterator entry(fs::path(library.path).parent_path(), error);
         !error && entry != fs::end(entry); entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (opens(name)) opened.push_back({name, entry->path().string()});
    }
    std::ranges::sort(opened, {}, &SharedLibrary::name);
    return opened;
}

bool has_name(const std::vector<SharedLibrary>& libraries, const std::string& name) {
    return std::ranges::find(libraries, name, &SharedLibrary::name) != libraries.end();
}

// Returns the libraries that the loader loads for FILE before it runs.
std::vector<SharedLibrary> loaded_libraries(const std::string& file,
                                            const EnvironmentList& environment) {
    std::string loader;
    ::dl_iterate_phdr(take_interpreter, &loader);
    if (loader.empty())
        fail(ExitCode::kSetup, "cannot list libraries, because this program has no dynamic loader");
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    SpawnRequest request;
    request.command = {loader, file};
    request.environment = environment;
    // With this variable the loader only lists what it would load, including "not found", and runs
    // nothing, as in ldd.
    set_variable(request.environment, "LD_TRACE_LOADED_OBJECTS", "1");
    request.stdout_fd = out.write_end.get();
    request.stderr_fd = err.write_end.get();
    const SpawnResult result = spawn(request);
    if (result.pid < 0) fail(ExitCode::kSetup, "{}: {}", loader, result.error);
    out.write_end.reset();
    err.write_end.reset();
    const std::string text = read_all(out.read_end.get());  // stderr is short enough for its pipe
    const std::string complaint = read_all(err.read_end.get());
    if (wait_for_end(result.pid) != 0) {
        fail(ExitCode::kSetup, "{} cannot list the libraries of {}: {}", loader, file,
             printable(trim(complaint)));
    }
    return parse_library_list(text);
}

// Returns the libraries that the loader loads with the library at PATH. Returns nullopt if the
// loader could not open the library on this machine, for example if PATH is a broken link.
std::optional<std::vector<SharedLibrary>> needed_to_open(const std::string& path,
                                                         const EnvironmentList& environment) {
    try {
        std::vector<SharedLibrary> needed = loaded_libraries(path, environment);
        const auto is_missing = [](const SharedLibrary& one) { return one.path.empty(); };
        if (std::ranges::any_of(needed, is_missing)) return std::nullopt;
        return needed;
    } catch (const Error&) {
        return std::nullopt;  // the loader has refused it
    }
}

}  // namespace

ElfNeeds read_elf_needs(const std::string& path) {
    const ElfFile file(path);
    ElfNeeds needs;
    const ElfFile::Table dynamic = file.table(SHT_DYNAMIC);
    Elf64_Dyn entry{};
    for (uint64_t at = 0; read_at(dynamic.bytes, at, entry); at += sizeof entry) {
        if (entry.d_tag == DT_NULL) break;
        if (entry.d_tag == DT_NEEDED) needs.libraries.push_back(dynamic.text(entry.d_un.d_val));
        if (entry.d_tag == DT_RUNPATH || entry.d_tag == DT_RPATH) {
            needs.folders = places(dynamic.text(entry.d_un.d_val), path);
        }
    }
    needs.glibc = newest_glibc(file.table(SHT_GNU_verneed));
    return needs;
}

std::vector<std::string> own_libraries(const std::string& path) {
    std::set<std::string> found;
    add_libraries(path, found);
    found.erase(path);
    return {found.begin(), found.end()};
}

std::vector<SharedLibrary> parse_library_list(const std::string& text) {
    std::vector<SharedLibrary> libraries;
    for (const std::string& line : split(text, '\n')) {
        // "\tNAME => PATH (0x…)", "\tNAME => not found", "\tPATH (0x…)"
        const std::string_view entry = trim(line);
        if (entry == "statically linked") continue;  // it needs none
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

std::vector<SharedLibrary> list_libraries(const std::string& file,
                                          const EnvironmentList& environment) {
    std::vector<SharedLibrary> found = loaded_libraries(file, environment);
    // The list grows while it is read, because an opened library may open further libraries.
    for (size_t i = 0; i < found.size(); ++i) {
        for (SharedLibrary& opened : opened_by(SharedLibrary(found[i]))) {
            if (has_name(found, opened.name)) continue;
            auto needed = needed_to_open(opened.path, environment);
            if (!needed) continue;
            found.push_back(std::move(opened));
            for (SharedLibrary& one : *needed)
                if (!has_name(found, one.name)) found.push_back(std::move(one));
        }
    }
    return found;
}

}  // namespace dslaunch::launch
