#include "launch/push/installation.h"

#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "launch/machine/shared_libraries.h"

namespace dslaunch::launch {
namespace {

class FileList {
  public:
    // Names of libraries that are missing here; nothing is added then.
    std::string add_program(const std::string& path, bool needs_gpu) {
        const std::vector<SharedLibrary> libraries = list_libraries(path);
        std::string missing;
        for (const SharedLibrary& library : libraries) {
            if (library.path.empty()) missing += " " + library.name;
        }
        if (!missing.empty()) return missing;
        files_.push_back({path, path, {}, needs_gpu});
        for (const SharedLibrary& library : libraries) {
            if (!names_.insert(library.name).second) continue;
            files_.push_back(
                {library.path, paths_.libraries + "/" + library.name, library.path, needs_gpu});
        }
        return {};
    }
    void require_program(const std::string& path) {
        const std::string missing = add_program(path, false);
        if (missing.empty()) return;
        fail(ExitCode::kSetup, "{} needs libraries that are not on this machine:{}", path, missing);
    }
    [[nodiscard]] std::vector<PushFile> take() { return std::move(files_); }

  private:
    InstallationPaths paths_ = installation_paths();
    std::vector<PushFile> files_;
    std::set<std::string> names_;
};

bool exists(const std::string& path) {
    return ::access(path.c_str(), F_OK) == 0;
}

}  // namespace

InstallationPaths installation_paths() {
    const std::filesystem::path programs = std::filesystem::path(launcher_path()).parent_path();
    const std::filesystem::path prefix = programs.parent_path();
    return {prefix.string(), programs.string(), (prefix / "lib/dslaunch").string()};
}

std::vector<PushFile> agent_files() {
    FileList list;
    list.require_program(launcher_path());
    return list.take();
}

std::vector<PushFile> installation_files(std::string& note) {
    const std::string folder = installation_paths().programs;
    const std::string worker = folder + "/dsworker", plugin = folder + "/libdsl_cuda.so";
    FileList list;
    list.require_program(launcher_path());
    if (exists(worker)) list.require_program(worker);
    if (exists(plugin)) {
        const std::string missing = list.add_program(plugin, true);
        if (!missing.empty()) {
            note = "libdsl_cuda.so, the part for GPUs, is not sent: this machine lacks" + missing;
        }
    }
    return list.take();
}

}  // namespace dslaunch::launch
