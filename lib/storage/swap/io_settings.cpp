#include "storage/swap/io_settings.h"

#include <unistd.h>

#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/machine/cache_folder.h"
#include "base/new_files.h"
#include "base/path.h"
#include "base/text.h"

namespace dslaunch::storage {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;
constexpr size_t kWords = 6;  // device engine block_bytes depth read_bytes_per_s write_bytes_per_s

std::optional<IoSettings> parse_line(const std::vector<std::string>& words) {
    IoSettings settings;
    const auto block = parse_int(words[2]);
    const auto depth = parse_int(words[3]);
    const auto read = parse_double(words[4]);
    const auto write = parse_double(words[5]);
    const bool known = words[1] == "io_uring" || words[1] == "threads";
    if (!known || !block || *block <= 0 || *block % kBlockAlignment != 0 || *block > gib(1).value ||
        !depth || *depth <= 0 || *depth > 1 << 16 || !read || !write) {
        return std::nullopt;
    }
    settings.engine = parse_io_engine(words[1]);
    settings.block = Bytes{*block};
    settings.depth = static_cast<int>(*depth);
    settings.read_bytes_per_s = *read;
    settings.write_bytes_per_s = *write;
    return settings;
}

std::vector<std::string> lines_of(const std::string& path) {
    if (path.empty() || ::access(path.c_str(), F_OK) != 0) return {};
    try {
        return split(read_file(path, kFileBytesMax), '\n');
    } catch (const Error& error) {
        log_warn("storage", "the stored I/O settings cannot be used: {}", error.what());
        return {};
    }
}

bool is_for(const std::vector<std::string>& words, const std::string& device_id) {
    return words.size() == kWords && words[0] == device_id;
}

}  // namespace

std::string io_settings_path() {
    const std::string folder = cache_folder();
    return folder.empty() ? folder : folder + "/io-settings";
}

std::optional<IoSettings> stored_io_settings(const std::string& path,
                                             const std::string& device_id) {
    for (const std::string& line : lines_of(path)) {
        const std::vector<std::string> words = split(line, ' ');
        if (!is_for(words, device_id)) continue;
        const auto settings = parse_line(words);
        if (!settings)
            log_warn("storage", "{}: the line for {} is not valid and was ignored", path,
                     device_id);
        return settings;
    }
    return std::nullopt;
}

void store_io_settings(const std::string& path, const std::string& device_id,
                       const IoSettings& settings) {
    std::string text;
    for (const std::string& line : lines_of(path)) {
        if (!line.empty() && !is_for(split(line, ' '), device_id)) text += line + "\n";
    }
    text += fmt::format("{} {} {} {} {:.0f} {:.0f}\n", device_id, io_engine_name(settings.engine),
                        settings.block.value, settings.depth, settings.read_bytes_per_s,
                        settings.write_bytes_per_s);
    static_cast<void>(make_folders(folder_of(path)));  // writing the file reports the fault
    write_file_atomically(path, text);
}

}  // namespace dslaunch::storage
