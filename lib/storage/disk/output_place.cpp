#include "storage/disk/output_place.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/text.h"
#include "base/text/file_faults.h"

namespace dslaunch::storage {

void require_unused(const std::string& path, bool force) {
    if (const std::string text = unexpanded_text(path); !text.empty())
        fail(ExitCode::kInput, "{}: {}", printable(path), text);
    std::error_code unreadable;
    const std::filesystem::path place(path);
    if (std::filesystem::is_other(place, unreadable))
        fail(ExitCode::kInput, "{}: is a device or a pipe; give the name of a file",
             printable(path));
    if (force) return;
    const bool is_file = std::filesystem::is_regular_file(place, unreadable);
    const bool is_filled = std::filesystem::is_directory(place, unreadable) &&
                           !std::filesystem::is_empty(place, unreadable) && !unreadable;
    if (is_file || is_filled) fail_used(path);
}

void require_new_file(const std::string& path, bool force) {
    std::error_code unreadable;
    if (path.ends_with('/') || std::filesystem::is_directory(path, unreadable))
        fail(ExitCode::kUsage, "{}: is a folder; give the name of a file in it", printable(path));
    require_unused(path, force);
    if (const std::string missing = missing_folder_text(path); !missing.empty())
        fail(ExitCode::kDisk, "{}: {}", printable(path), missing);
}

void require_not_input(const std::string& path, const std::string& input) {
    namespace fs = std::filesystem;
    std::error_code missing;
    const auto folder_of_file = [](const std::string& file) {
        return fs::path(file + (file.ends_with('/') ? "." : "")).parent_path();
    };
    const auto same = [&](const fs::path& a, const fs::path& b) {
        return fs::equivalent(a.empty() ? "." : a, b.empty() ? "." : b, missing);
    };
    const bool is_file_of_input = fs::is_regular_file(path, missing) &&
                                  fs::is_directory(input, missing) &&
                                  same(folder_of_file(path), input);
    const bool is_result_here = (same(fs::path(path) / "model.pt", input) ||
                                 same(fs::path(path) / "model.safetensors", input));
    if (!same(path, input) && !is_file_of_input && !is_result_here) return;
    fail(ExitCode::kInput,
         "{}: would replace {}, which this command reads, and --force does not allow this either: "
         "give another path",
         printable(path),
         is_file_of_input || is_result_here ? printable(input) : "the input itself");
}

void fail_used(const std::string& path) {
    fail(ExitCode::kInput, "{}: already exists; use --force to replace it, or give another path",
         printable(path));
}

}  // namespace dslaunch::storage
