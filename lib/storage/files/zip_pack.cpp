// Implements pack_archive() (see zip_archive.h).
#include <algorithm>

#include "base/error.h"
#include "base/new_files.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "storage/files/atomic_file.h"
#include "storage/files/crc32.h"
#include "storage/files/zip_archive.h"
#include "storage/files/zip_format.h"

namespace dslaunch::storage {
namespace {

using namespace zip;

constexpr uint64_t kDate1980 = 0x0021;  // the earliest date, so that copies are reproducible
constexpr size_t kNameBytesMax = 200;

void check_extra_name(const std::string& path, const std::string& name) {
    bool usable = !name.empty() && name.size() <= kNameBytesMax && printable(name) == name &&
                  name.find('\t') == std::string::npos;
    for (const std::string& part : split(name, '/'))
        usable = usable && !part.empty() && part != "." && part != "..";
    if (!usable)
        fail(ExitCode::kInput, "{}: '{}' is not a valid name for an extra file", path,
             printable(name));
}

class Writer {
  public:
    Writer(AtomicFile& file, const ZipArchive& archive, const PackOptions& options)
        : file_(file), archive_(archive), zip64_from_(options.zip64_from) {}

    void write(const ZipRecord& record) {
        const std::string name = archive_.root() + "/" + record.name;
        const uint64_t offset = offset_;
        const std::string header = local_header(record, name);
        file_.write(header);
        file_.write(record.stored);
        offset_ += header.size() + record.stored.size();
        add_to_directory(record, name, offset);
        ++record_count_;
    }

    // Writes the directory, then the end records of zip64 (always, as PyTorch does) and of zip.
    void finish() {
        const uint64_t length = directory_.size();
        const uint64_t end64 = offset_ + length;
        std::string& out = directory_;
        append<4>(out, kEnd64Mark);
        append<8>(out, kEnd64Bytes - 12);
        append<2>(out, kVersion64);
        append<2>(out, kVersion64);
        append<8>(out, 0);  // disks
        append<8>(out, record_count_);
        append<8>(out, record_count_);
        append<8>(out, length);
        append<8>(out, offset_);
        append<4>(out, kLocator64Mark);
        append<4>(out, 0);
        append<8>(out, end64);
        append<4>(out, 1);
        append<4>(out, kEndMark);
        append<4>(out, 0);
        append<2>(out, std::min<uint64_t>(record_count_, kFull16));
        append<2>(out, std::min<uint64_t>(record_count_, kFull16));
        append<4>(out, narrow(length));
        append<4>(out, narrow(offset_));
        append<2>(out, 0);
        file_.write(out);
    }

  private:
    static constexpr uint64_t kVersion = 20;
    static constexpr uint64_t kVersion64 = 45;

    bool wide(uint64_t value) const { return value >= zip64_from_; }
    uint64_t narrow(uint64_t value) const { return wide(value) ? kFull32 : value; }
    static uint64_t content_bytes(const ZipRecord& record) {
        return static_cast<uint64_t>(record.content_bytes);
    }

    // Appends the fields from "version needed" to the length of the name, which are the same in
    // both kinds of header.
    void append_common(std::string& out, const ZipRecord& record, bool zip64) const {
        append<2>(out, zip64 ? kVersion64 : kVersion);
        append<2>(out, record.is_utf8 ? kUtf8Flag : 0U);
        append<2>(out, record.is_deflated ? kDeflated : kStored);
        append<2>(out, 0);  // time
        append<2>(out, kDate1980);
        append<4>(out, record.crc32);
    }

    // Returns the header, padded so that the content after it is aligned.
    std::string local_header(const ZipRecord& record, const std::string& name) const {
        const bool zip64 = wide(record.stored.size()) || wide(content_bytes(record));
        std::string extra;
        if (zip64) {
            append<2>(extra, kZip64Field);
            append<2>(extra, 16);
            append<8>(extra, content_bytes(record));
            append<8>(extra, record.stored.size());
        }
        const size_t least = kLocalBytes + name.size() + extra.size() + 4;  // 4: padding's head
        const auto padding =
            static_cast<size_t>(round_up(static_cast<int64_t>(offset_ + least), kDataAlignment) -
                                static_cast<int64_t>(offset_ + least));
        append<2>(extra, kPaddingField);
        append<2>(extra, padding);
        extra.append(padding, 'Z');
        std::string out;
        append<4>(out, kLocalMark);
        append_common(out, record, zip64);
        append<4>(out, zip64 ? kFull32 : record.stored.size());
        append<4>(out, zip64 ? kFull32 : content_bytes(record));
        append<2>(out, name.size());
        append<2>(out, extra.size());
        return out + name + extra;
    }

    void add_to_directory(const ZipRecord& record, const std::string& name, uint64_t offset) {
        std::string fields;
        for (const uint64_t value : {content_bytes(record), record.stored.size(), offset})
            if (wide(value)) append<8>(fields, value);
        std::string extra;
        if (!fields.empty()) {
            append<2>(extra, kZip64Field);
            append<2>(extra, fields.size());
            extra += fields;
        }
        append<4>(directory_, kCentralMark);
        append<2>(directory_, kVersion64);  // made by
        append_common(directory_, record, !fields.empty());
        append<4>(directory_, narrow(record.stored.size()));
        append<4>(directory_, narrow(content_bytes(record)));
        append<2>(directory_, name.size());
        append<2>(directory_, extra.size());
        append<8>(directory_, 0);  // comment, disk, internal and half of the external attributes
        append<2>(directory_, 0);
        append<4>(directory_, narrow(offset));
        directory_ += name + extra;
    }

    AtomicFile& file_;
    const ZipArchive& archive_;
    uint64_t zip64_from_;
    uint64_t offset_ = 0;
    uint64_t record_count_ = 0;
    std::string directory_;
};

}  // namespace

void pack_archive(const std::string& in, const std::string& out,
                  const std::map<std::string, std::string>& extras, const PackOptions& options) {
    const ZipArchive archive(in);
    Bytes need;
    for (const ZipRecord& record : archive.records())
        need.value += static_cast<int64_t>(record.stored.size());
    for (const auto& [name, content] : extras) {
        check_extra_name(out, name);
        need.value += static_cast<int64_t>(content.size());
    }
    AtomicFile file(out, need);
    // A copy of a private model is private too; a file that is replaced keeps its mode.
    if (const std::optional<mode_t> mode = mode_of(in); mode && !mode_of(out)) file.set_mode(*mode);
    Writer writer(file, archive, options);
    constexpr std::string_view kExtra = "extra/";
    for (const ZipRecord& record : archive.records())
        if (!record.name.starts_with(kExtra) || !extras.contains(record.name.substr(kExtra.size())))
            writer.write(record);
    for (const auto& [name, content] : extras) {
        const auto bytes = bytes_in(content);
        writer.write({std::string(kExtra).append(name), false, true, crc32(bytes),
                      static_cast<int64_t>(bytes.size()), bytes});
    }
    writer.finish();
    file.commit();
}

}  // namespace dslaunch::storage
