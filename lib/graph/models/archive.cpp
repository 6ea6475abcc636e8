#include "graph/models/archive.h"

#include "base/error.h"
#include "base/fd.h"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/export.h>

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>

namespace dslaunch {
namespace {

using caffe2::serialize::PyTorchStreamReader;
using caffe2::serialize::PyTorchStreamWriter;

constexpr const char* kExtraPrefix = "extra/";

// A file beside PATH that takes its name when the content is complete; removed if that never
// happens.
class Replacement {
  public:
    explicit Replacement(const std::string& path)
        : path_(path),
          temporary_(fmt::format("{}.tmp-{}", path, getpid())),
          fd_(open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
        if (!fd_.valid()) give_up(errno);
    }
    Replacement(const Replacement&) = delete;
    Replacement& operator=(const Replacement&) = delete;
    ~Replacement() {
        if (!done_) unlink(temporary_.c_str());
    }

    size_t write(const void* data, size_t length) {
        const int rc = write_full(fd_.get(), {static_cast<const std::byte*>(data), length});
        if (rc != 0) give_up(-rc);
        return length;
    }

    void commit() {
        if (fsync(fd_.get()) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) give_up(errno);
        done_ = true;
    }

  private:
    [[noreturn]] void give_up(int error_number) const {
        unlink(temporary_.c_str());
        fail(ExitCode::kDisk, "{}: cannot write the archive: {}", path_, errno_text(error_number));
    }

    std::string path_;
    std::string temporary_;
    UniqueFd fd_;
    bool done_ = false;
};

std::string first_line(const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return text.substr(0, text.find('\n'));
}

PyTorchStreamReader open_archive(const std::string& path) {
    if (access(path.c_str(), R_OK) != 0) fail(ExitCode::kInput, "{}: {}", path, errno_text(errno));
    try {
        return PyTorchStreamReader(path);
    } catch (const c10::Error& error) {
        fail(ExitCode::kInput,
             "{}: not a TorchScript archive ({}); make one with torch.jit.save or "
             "`dslaunch model new`",
             path, first_line(error));
    }
}

// What the writer adds by itself at the end.
bool is_made_by_writer(const std::string& record) {
    return record == "version" || record == ".data/version" || record == ".data/serialization_id";
}

void copy_records(PyTorchStreamReader& reader, PyTorchStreamWriter& writer,
                  const std::map<std::string, std::string>& extra) {
    for (const std::string& record : reader.getAllRecords()) {
        if (is_made_by_writer(record)) continue;
        if (record.starts_with(kExtraPrefix) &&
            extra.contains(record.substr(std::char_traits<char>::length(kExtraPrefix))))
            continue;
        const auto [data, bytes] = reader.getRecord(record);
        writer.writeRecord(record, data.get(), bytes);
    }
}

}  // namespace

void save_archive(const torch::jit::Module& module, const std::string& path) {
    Replacement file(path);
    torch::jit::ExportModule(
        module, [&](const void* data, size_t length) { return file.write(data, length); });
    file.commit();
}

std::optional<std::string> read_extra_file(const std::string& path, const std::string& name) {
    PyTorchStreamReader reader = open_archive(path);
    const std::string record = kExtraPrefix + name;
    if (!reader.hasRecord(record)) return std::nullopt;
    const auto [data, bytes] = reader.getRecord(record);
    return std::string(static_cast<const char*>(data.get()), bytes);
}

void write_with_extra_files(const std::string& source, const std::string& path,
                            const std::map<std::string, std::string>& extra) {
    PyTorchStreamReader reader = open_archive(source);
    Replacement file(path);
    PyTorchStreamWriter writer(
        [&](const void* data, size_t length) { return file.write(data, length); });
    writer.setMinVersion(reader.version());
    copy_records(reader, writer, extra);
    for (const auto& [name, content] : extra)
        writer.writeRecord(kExtraPrefix + name, content.data(), content.length());
    writer.writeEndOfFile();
    file.commit();
}

}  // namespace dslaunch
