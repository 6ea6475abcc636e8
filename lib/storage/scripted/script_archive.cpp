#include "storage/scripted/script_archive.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "storage/scripted/script_code.h"
#include "storage/scripted/script_tensors.h"

namespace dslaunch::storage {

namespace {

// The limits of script_bytes_max(). Without them, LibTorch would allocate gigabytes if a small
// archive asks for them.
constexpr int64_t kExpandedFactorMax = 4;
constexpr int64_t kExpandedExtraMax = int64_t{256} << 20;

class Records {
  public:
    Records(const std::string& path, const ZipDirectory& directory, const ScriptArchive::Read& read)
        : path_(path), read_(read) {
        for (const ZipRecord& record : directory.records) by_name_.emplace(record.name, &record);
    }

    [[nodiscard]] bool has(std::string_view name) const { return by_name_.count(name) > 0; }

    [[nodiscard]] std::string content(std::string_view name) const {
        const auto found = by_name_.find(name);
        if (found == by_name_.end())
            fail(ExitCode::kInput, "{}: the archive has no record {}", path_, printable(name));
        return read_(*found->second);
    }

    [[nodiscard]] std::optional<int64_t> content_bytes(std::string_view name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? std::nullopt : std::optional(found->second->content_bytes);
    }

  private:
    const std::string& path_;
    const ScriptArchive::Read& read_;
    std::map<std::string_view, const ZipRecord*> by_name_;
};

}  // namespace

int64_t script_bytes_max(int64_t file_bytes) {
    return kExpandedFactorMax * file_bytes + kExpandedExtraMax;
}

ScriptArchive::ScriptArchive(const std::string& path, const ZipDirectory& directory,
                             int64_t file_bytes, const Read& read) {
    const Records records(path, directory, read);
    if (records.has("model.json"))
        fail(ExitCode::kInput,
             "{}: was written by PyTorch before 1.4, which is not supported; load it with a newer "
             "PyTorch and save it again",
             path);
    if (records.has("byteorder") && records.content("byteorder") != "little")
        fail(ExitCode::kInput,
             "{}: its numbers are not little-endian, the only supported byte order", path);
    ScriptCode code(path);
    for (const ZipRecord& record : directory.records) {
        if (!record.name.starts_with("code/") || !record.name.ends_with(".py")) continue;
        code.add(record.name, code_.emplace(record.name, read(record)).first->second);
    }
    code_depth_ = code.depth();
    int64_t all_bytes = 0;
    const auto read_part = [&](const std::string& name) {
        const std::string where = fmt::format("{}: {}.pkl", path, name);
        std::string bytes = records.content(name + ".pkl");
        Pickle values(where, std::as_bytes(std::span(bytes)), PickleWords::kScript);
        const int64_t tensor_bytes = check_script_tensors(where, values, [&](std::string_view key) {
            return records.content_bytes(fmt::format("{}/{}", name, key));
        });
        if (__builtin_add_overflow(all_bytes, tensor_bytes, &all_bytes) ||
            all_bytes > script_bytes_max(file_bytes))
            fail(ExitCode::kInput,
                 "{}: its tensors expand to more than {}, though the file has only {}; PyTorch "
                 "writes no such model",
                 where, to_text(Bytes{script_bytes_max(file_bytes)}), to_text(Bytes{file_bytes}));
        return Part{std::move(bytes), std::optional(std::move(values))};
    };
    constants_ = read_part("constants");
    data_ = read_part("data");
}

}  // namespace dslaunch::storage
