#include "launch/machine/torch_place.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "launch/machine/elf_needs.h"
#include "launch/process/process_tree.h"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTorchLibrary = "libtorch_cpu.so";
constexpr const char* kSearchVariable = "LD_LIBRARY_PATH";
constexpr const char* kHowToName =
    "the folder of PyTorch is what `python3 -c 'import torch; print(torch.__path__[0])'` prints";

bool has_torch(const std::string& folder) {
    std::error_code unreadable;
    return fs::exists(folder + "/" + kTorchLibrary, unreadable);
}

// Returns the version in torch's version.py, such as "2.11.0+cu130". LIBRARIES is the path of
// torch/lib. Returns an empty text if there is no such file, as in a LibTorch without Python.
std::string version_of(const std::string& libraries) {
    constexpr std::string_view kName = "__version__ = '";
    const std::string text =
        text_or_empty((fs::path(libraries).parent_path() / "version.py").string());
    const size_t begin = text.find(kName);
    if (begin == std::string::npos) return {};
    const size_t at = begin + kName.size();
    return text.substr(at, text.find('\'', at) - at);
}

bool serves(const std::string& version, const TorchSeeker& seeker) {
    return version.empty() || seeker.version.empty() || version.starts_with(seeker.version + ".");
}

// Returns the paths of FOLDER's entries whose names begin with START, the last name first.
std::vector<std::string> entries_of(const fs::path& folder, std::string_view start) {
    std::vector<std::string> found;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error); !error && entry != fs::end(entry);
         entry.increment(error)) {
        if (entry->path().filename().string().starts_with(start))
            found.push_back(entry->path().string());
    }
    std::sort(found.rbegin(), found.rend());
    return found;
}

// The Python environments of one user, in the order in which they are searched.
class Environments {
  public:
    explicit Environments(const EnvironmentList& environment) : environment_(environment) {}

    // Returns the folders torch/lib of all environments: first the active environments, then
    // PREFIX, then the others.
    [[nodiscard]] std::vector<std::string> torch_folders(const std::string& prefix) {
        for (const std::string& folder : split(value_of("PYTHONPATH"), ':')) add(folder);
        add_prefix(value_of("VIRTUAL_ENV"));
        add_prefix(value_of("CONDA_PREFIX"));
        add_prefix(prefix);
        for (const std::string& folder : split(value_of("PATH"), ':')) {
            const fs::path python = fs::path(folder) / "python3";
            std::error_code error;
            if (!python.is_absolute() || !fs::exists(python, error)) continue;
            add_prefix(python.parent_path().parent_path());
            add_prefix(fs::canonical(python, error).parent_path().parent_path());
        }
        if (const std::string home = value_of("HOME"); !home.empty()) add_prefix(home + "/.local");
        return std::move(found_);
    }

  private:
    [[nodiscard]] std::string value_of(const std::string& name) const {
        const std::string* const value = find_variable(environment_, name);
        return value == nullptr ? std::string() : *value;
    }
    // Adds the torch of FOLDER, a folder of packages. Skips a path that contains a colon or a
    // semicolon, since these separate the folders in LD_LIBRARY_PATH.
    void add(const std::string& folder) {
        const std::string libraries = folder + "/torch/lib";
        const bool is_named = folder.starts_with('/') && folder.find_first_of(":;") == folder.npos;
        if (is_named && has_torch(libraries)) found_.push_back(libraries);
    }
    // Adds the torch of each Python below PREFIX, such as a virtual environment, /usr or ~/.local.
    void add_prefix(const fs::path& prefix) {
        if (!prefix.is_absolute()) return;
        for (const char* const below : {"lib", "local/lib"}) {
            for (const std::string& python : entries_of(prefix / below, "python3")) {
                add(python + "/site-packages");
                add(python + "/dist-packages");
            }
        }
    }

    const EnvironmentList& environment_;
    std::vector<std::string> found_;
};

// Returns the folder of LibTorch's libraries that DSLAUNCH_TORCH names; empty if it is not set.
std::string given_torch(const EnvironmentList& environment) {
    const std::string* const given = find_variable(environment, kTorchVariable);
    if (given == nullptr || given->empty()) return {};
    for (const char* const below : {"/lib", "", "/torch/lib"}) {
        const std::string folder = *given + below;
        const bool is_named = folder.starts_with('/') && folder.find_first_of(":;") == folder.npos;
        if (is_named && has_torch(folder)) return fs::path(folder).lexically_normal().string();
    }
    fail(ExitCode::kSetup,
         "{}={}: this folder has no lib/{}, or its path is not absolute, or the path contains a "
         "colon; {}",
         kTorchVariable, printable(*given), kTorchLibrary, kHowToName);
}

// Throws unless SEEKER can use the LibTorch in LIBRARIES. IS_OWN: LIBRARIES is one of SEEKER's own
// folders.
void require_version(const std::string& libraries, const TorchSeeker& seeker, bool is_own) {
    const std::string version = version_of(libraries);
    if (serves(version, seeker)) return;
    const std::string torch = fs::path(libraries).parent_path().string();
    fail(ExitCode::kSetup,
         "this dslaunch was built with LibTorch {0}, and does not run with {1}, which is version "
         "{2}: install version {0} (pip install 'torch=={0}.*'){3}, or build dslaunch with version "
         "{2} (DSL_TORCH_DIR={1} make wheel)",
         seeker.version, printable(torch), printable(version),
         is_own ? ""
                : fmt::format(", set {} to the folder of a PyTorch of version {}", kTorchVariable,
                              seeker.version));
}

// Returns LIBRARIES, and the folders of the CUDA libraries that pip installs beside torch.
std::string with_cuda(const std::string& libraries) {
    std::string path = libraries;
    const fs::path packages = fs::path(libraries).parent_path().parent_path();
    for (const std::string& part : entries_of(packages / "nvidia", "")) {
        std::error_code unreadable;
        if (fs::is_directory(part + "/lib", unreadable)) path += ":" + part + "/lib";
    }
    return path;
}

}  // namespace

std::string torch_search_path(const TorchSeeker& seeker, const EnvironmentList& environment) {
    const std::string given = given_torch(environment);
    for (const std::string& folder : seeker.folders) {
        if (!has_torch(folder)) continue;
        std::error_code unreadable;
        if (!given.empty() && !fs::equivalent(folder, given, unreadable)) {
            fail(ExitCode::kSetup,
                 "{}={}: this dslaunch always takes the LibTorch in {}; unset the variable, or "
                 "install dslaunch without LibTorch",
                 kTorchVariable, printable(given), printable(folder));
        }
        require_version(folder, seeker, true);
        return {};
    }
    if (!given.empty()) {
        require_version(given, seeker, false);
        return with_cuda(given);
    }
    const std::vector<std::string> found = Environments(environment).torch_folders(seeker.prefix);
    for (const std::string& folder : found)
        if (serves(version_of(folder), seeker)) return with_cuda(folder);
    if (!found.empty()) require_version(found.front(), seeker, false);
    fail(ExitCode::kSetup,
         "dslaunch needs LibTorch {0}, but found no torch beside {1}, and none in an active Python "
         "environment or in the packages of a python3 in PATH: run pip install 'torch=={0}.*', or "
         "set {2} to the folder of PyTorch ({3})",
         seeker.version, printable(seeker.prefix + "/bin/dsworker"), kTorchVariable, kHowToName);
}

void lead_to_torch(const std::string& worker, EnvironmentList& environment) {
    ElfNeeds needs;
    try {
        needs = read_elf_needs(worker);
    } catch (const Error&) {  // not an ELF file: starting it reports the fault
        return;
    }
    if (std::ranges::find(needs.libraries, kTorchLibrary) == needs.libraries.end()) return;
    TorchSeeker seeker;
    seeker.prefix = fs::path(worker).parent_path().parent_path().string();
    seeker.folders = needs.folders;
    seeker.version = torch_of_build();
    std::string path = torch_search_path(seeker, environment);
    if (path.empty()) return;
    const std::string* const before = find_variable(environment, kSearchVariable);
    if (before != nullptr && !before->empty()) path += ":" + *before;
    set_variable(environment, kSearchVariable, path);
}

}  // namespace dslaunch::launch
