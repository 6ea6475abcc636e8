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

RowSpool::RowSpool(const std::string& beside, bool with_documents) {
    if (with_documents) columns_.push_back({"documents", &tokens::TokenRow::documents});
    std::string path = beside + ".rows-XXXXXX";
    file_ = UniqueFd(::mkostemp(path.data(), O_CLOEXEC));
    if (!file_.valid())
        fail(ExitCode::kDisk, "{}: cannot be made: {}", printable(path), errno_text(errno));
    ::unlink(path.c_str());
    path_ = path;
}

void RowSpool::add(const tokens::TokenRow& row) {
    for (const Column& column : columns_) {
        const std::vector<int32_t>& numbers = row.*column.of_row;
        buffer_.append(reinterpret_cast<const char*>(numbers.data()),
                       numbers.size() * sizeof(int32_t));
    }
    ++rows_;
    if (buffer_.size() > kBufferBytesMax) flush();
}

void RowSpool::write(const std::string& path, int64_t length, int64_t rows_each) {
    flush();
    std::vector<int64_t> shape = {rows_ / rows_each, length};
    if (rows_each > 1) shape.insert(shape.begin() + 1, rows_each);
    std::vector<storage::SafetensorsEntry> entries;
    for (const Column& column : columns_) entries.push_back({column.name, DType::kI32, shape, {}});
    storage::SafetensorsWriter writer(path, entries);
    const auto row_bytes = static_cast<size_t>(length) * sizeof(int32_t);
    for (size_t column = 0; column < entries.size(); ++column)
        for (int64_t row = 0; row < rows_; ++row) {
            std::vector<std::byte> bytes(row_bytes);
            const auto at = static_cast<off_t>(
                (static_cast<size_t>(row) * entries.size() + column) * row_bytes);
            if (::pread(file_.get(), bytes.data(), row_bytes, at) !=
                static_cast<ssize_t>(row_bytes))
                fail(ExitCode::kDisk, "{}: cannot be read again: {}", printable(path_),
                     errno_text(errno));
            writer.append(column, bytes);
        }
    writer.commit();
}

void RowSpool::flush() {
    const std::string_view bytes = buffer_;
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t written = ::write(file_.get(), bytes.data() + done, bytes.size() - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            fail(ExitCode::kDisk, "{}: cannot be written: {}", printable(path_), errno_text(errno));
        done += static_cast<size_t>(written);
    }
    buffer_.clear();
}

}  // namespace dslaunch::worker
