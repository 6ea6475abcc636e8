#include "worker/data/row_spool.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "storage/files/safetensors.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kBufferBytesMax = size_t{8} << 20;

}  // namespace

UniqueFd open_spool(const std::string& beside) {
    std::string path = beside + ".rows-XXXXXX";
    UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
    if (!file.valid())
        fail(ExitCode::kDisk, "{}: cannot be made: {}", printable(path), errno_text(errno));
    ::unlink(path.c_str());
    return file;
}

void write_spool(int fd, std::string_view bytes, const std::string& path) {
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t written = ::write(fd, bytes.data() + done, bytes.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            fail(ExitCode::kDisk, "{}: rows beside it cannot be written: {}", printable(path),
                 errno_text(errno));
        done += static_cast<size_t>(written);
    }
}

RowSpool::RowSpool(const std::string& beside, bool with_documents)
    : file_(open_spool(beside)), path_(beside) {
    if (with_documents) columns_.push_back({"documents", &text::TokenRow::documents});
}

void RowSpool::add(const text::TokenRow& row) {
    for (const Column& column : columns_) {
        const std::vector<int32_t>& numbers = row.*column.of_row;
        buffer_.append(reinterpret_cast<const char*>(numbers.data()),
                       numbers.size() * sizeof(int32_t));
    }
    ++rows_;
    if (buffer_.size() > kBufferBytesMax) flush();
}

void RowSpool::write(const std::string& path, const Shape& rows,
                     const std::map<std::string, std::string>& metadata) {
    flush();
    std::vector<int64_t> shape = {rows_ / rows.rows_each, rows.length};
    if (rows.rows_each > 1) shape.insert(shape.begin() + 1, rows.rows_each);
    std::vector<storage::SafetensorsEntry> entries;
    for (const Column& column : columns_) entries.push_back({column.name, DType::kI32, shape, {}});
    storage::SafetensorsWriter writer(path, entries, metadata);
    const auto row_bytes = static_cast<size_t>(rows.length) * sizeof(int32_t);
    for (size_t column = 0; column < entries.size(); ++column)
        for (int64_t row = 0; row < rows_; ++row) {
            std::vector<std::byte> bytes(row_bytes);
            const auto at = static_cast<off_t>(
                (static_cast<size_t>(row) * entries.size() + column) * row_bytes);
            if (::pread(file_.get(), bytes.data(), row_bytes, at) !=
                static_cast<ssize_t>(row_bytes))
                fail(ExitCode::kDisk, "{}: rows beside it cannot be read again: {}",
                     printable(path_), errno_text(errno));
            writer.append(column, bytes);
        }
    writer.commit();
}

void RowSpool::flush() {
    write_spool(file_.get(), buffer_, path_);
    buffer_.clear();
}

}  // namespace dslaunch::worker
