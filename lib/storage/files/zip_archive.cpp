#include "storage/files/zip_archive.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "storage/files/crc32.h"
#include "storage/files/zip_format.h"

namespace dslaunch::storage {
namespace {

using namespace zip;
using Span = std::span<const std::byte>;

// The position of the directory and its number of records.
struct Directory {
    uint64_t begin = 0;
    uint64_t length = 0;
    uint64_t record_count = 0;
};

// One record, as the directory describes it.
struct Entry {
    std::string name;  // the name with the root
    uint64_t flags = 0, method = 0, crc = 0;
    uint64_t stored_bytes = 0, content_bytes = 0, offset = 0;
};

class Parser {
  public:
    Parser(const std::string& path, Span bytes) : path_(path), bytes_(bytes) {}

    ZipDirectory parse() {
        const Directory directory = find_directory();
        std::vector<Entry> entries = read_entries(directory);
        std::sort(entries.begin(), entries.end(),
                  [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
        ZipDirectory out;
        uint64_t free_from = 0;
        for (const Entry& entry : entries) {
            if (entry.offset < free_from) bad("record '{}' overlaps another record", entry.name);
            out.records.push_back(read_local(entry, directory.begin, free_from));
        }
        take_root(out);
        return out;
    }

    [[nodiscard]] Bytes expanded() const {
        uint64_t all = 0;
        for (const Entry& entry : read_entries(find_directory()))
            all = std::min(all + entry.content_bytes, uint64_t{INT64_MAX});
        return Bytes{static_cast<int64_t>(all)};
    }

  private:
    template <typename... Args>
    [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
        fail(ExitCode::kInput, "{}: not a usable archive: {}", path_,
             printable(fmt::format(format, std::forward<Args>(args)...)));
    }

    bool marked(uint64_t at, uint32_t mark) const {
        return at + 4 <= bytes_.size() && load(bytes_, at, 4) == mark;
    }

    // Returns the position of the end record: the last one whose comment ends exactly at the end of
    // the file.
    size_t find_end() const {
        if (bytes_.size() < kEndBytes) bad("{} bytes are too few for a zip", bytes_.size());
        const size_t last = bytes_.size() - kEndBytes;
        const size_t first = last > kFull16 ? last - kFull16 : 0;
        for (size_t at = last + 1; at-- > first;)
            if (marked(at, kEndMark) && at + kEndBytes + load(bytes_, at + 20, 2) == bytes_.size())
                return at;
        bad("it has no zip directory at its end; the file is truncated or not a TorchScript "
            "archive");
    }

    Directory find_directory() const {
        const size_t end = find_end();
        if (load(bytes_, end + 4, 2) != 0 || load(bytes_, end + 6, 2) != 0)
            bad("it is one part of a split zip archive");
        Directory found{load(bytes_, end + 16, 4), load(bytes_, end + 12, 4),
                        load(bytes_, end + 10, 2)};
        if (load(bytes_, end + 8, 2) != found.record_count)
            bad("it is one part of a split zip archive");
        uint64_t limit = end;
        if (end >= kLocator64Bytes && marked(end - kLocator64Bytes, kLocator64Mark)) {
            limit = load(bytes_, end - kLocator64Bytes + 8, 8);
            found = find_directory64(limit, end - kLocator64Bytes, found);
        }
        if (found.begin > limit || found.length != limit - found.begin)
            bad("its directory begins at byte {} and has {} bytes, but must end at byte {}",
                found.begin, found.length, limit);
        if (found.record_count > found.length / kCentralBytes)
            bad("its directory of {} bytes is too small for {} records", found.length,
                found.record_count);
        return found;
    }

    // Reads the zip64 end record. A field of the old end record may have the largest value of its
    // type. In this case only the zip64 record has the real value. All other fields must be equal
    // in both records.
    Directory find_directory64(uint64_t at, uint64_t locator, const Directory& old) const {
        if (at > locator || locator - at != kEnd64Bytes || !marked(at, kEnd64Mark))
            bad("the zip64 end record is not where its locator says");
        if (load(bytes_, locator + 4, 4) != 0 || load(bytes_, locator + 16, 4) > 1 ||
            load(bytes_, at + 16, 8) != 0)
            bad("it is one part of a split zip archive");
        const Directory found{load(bytes_, at + 48, 8), load(bytes_, at + 40, 8),
                              load(bytes_, at + 32, 8)};
        if (load(bytes_, at + 24, 8) != found.record_count)
            bad("it is one part of a split zip archive");
        if ((old.begin != kFull32 && old.begin != found.begin) ||
            (old.length != kFull32 && old.length != found.length) ||
            (old.record_count != kFull16 && old.record_count != found.record_count))
            bad("its two end records do not match");
        return found;
    }

    std::vector<Entry> read_entries(const Directory& directory) const {
        std::vector<Entry> entries;
        std::set<std::string> names;
        Span rest = bytes_.subspan(directory.begin, directory.length);
        for (uint64_t i = 0; i < directory.record_count; ++i) {
            entries.push_back(read_entry(rest));
            if (!names.insert(entries.back().name).second)
                bad("record '{}' appears twice", entries.back().name);
        }
        if (!rest.empty())
            bad("{} bytes at the end of its directory are not a record", rest.size());
        return entries;
    }

    // Reads one entry and removes it from the front of REST.
    Entry read_entry(Span& rest) const {
        if (rest.size() < kCentralBytes || load(rest, 0, 4) != kCentralMark)
            bad("its directory is damaged");
        const size_t name_bytes = load(rest, 28, 2), extra_bytes = load(rest, 30, 2);
        const size_t all_bytes = kCentralBytes + name_bytes + extra_bytes + load(rest, 32, 2);
        if (all_bytes > rest.size()) bad("its directory is damaged");
        Entry entry{.name = text(rest.subspan(kCentralBytes, name_bytes)),
                    .flags = load(rest, 8, 2),
                    .method = load(rest, 10, 2),
                    .crc = load(rest, 16, 4),
                    .stored_bytes = load(rest, 20, 4),
                    .content_bytes = load(rest, 24, 4),
                    .offset = load(rest, 42, 4)};
        if (load(rest, 34, 2) != 0) bad("it is one part of a split zip archive");
        widen(entry, rest.subspan(kCentralBytes + name_bytes, extra_bytes));
        check_kind(entry);
        rest = rest.subspan(all_bytes);
        return entry;
    }

    // Replaces each field of ENTRY that has the largest 32-bit value by a 64-bit value. The zip64
    // extra data contain these values in the order of `fields`.
    void widen(Entry& entry, Span extra) const {
        uint64_t* fields[] = {&entry.content_bytes, &entry.stored_bytes, &entry.offset};
        while (extra.size() >= 4) {
            const size_t length = load(extra, 2, 2);
            if (length > extra.size() - 4) bad("record '{}' has a damaged extra field", entry.name);
            Span values = extra.subspan(4, length);
            if (load(extra, 0, 2) == kZip64Field)
                for (uint64_t* field : fields) {
                    if (*field != kFull32 || values.size() < 8) continue;
                    *field = load(values, 0, 8);
                    values = values.subspan(8);
                }
            extra = extra.subspan(4 + length);
        }
    }

    void check_kind(const Entry& entry) const {
        if ((entry.flags & kEncryptedFlags) != 0) bad("record '{}' is encrypted", entry.name);
        if (entry.method != kStored && entry.method != kDeflated)
            bad("record '{}' is compressed by method {}, which is not supported", entry.name,
                entry.method);
        if (entry.method == kStored && entry.stored_bytes != entry.content_bytes)
            bad("record '{}' is not compressed, but its two sizes differ", entry.name);
        if (entry.content_bytes > static_cast<uint64_t>(INT64_MAX))
            bad("record '{}' has an impossible size", entry.name);
        for (const unsigned char c : entry.name)
            if (c < 0x20 || c == 0x7F)
                bad("the name of record '{}' has control characters", entry.name);
    }

    // Returns the record of ENTRY, which must end before LIMIT. Sets FREE_FROM to the end of the
    // record.
    ZipRecord read_local(const Entry& entry, uint64_t limit, uint64_t& free_from) const {
        if (entry.offset > limit || limit - entry.offset < kLocalBytes ||
            !marked(entry.offset, kLocalMark))
            bad("record '{}' is not where the directory says", entry.name);
        const Span header = bytes_.subspan(entry.offset, limit - entry.offset);
        const size_t name_bytes = load(header, 26, 2);
        const size_t begin = kLocalBytes + name_bytes + load(header, 28, 2);
        if (begin > header.size() || entry.stored_bytes > header.size() - begin)
            bad("record '{}' reaches into the zip directory", entry.name);
        if (text(header.subspan(kLocalBytes, name_bytes)) != entry.name ||
            load(header, 8, 2) != entry.method)
            bad("record '{}': its own header disagrees with the directory", entry.name);
        free_from = entry.offset + begin + entry.stored_bytes;
        return {entry.name,
                entry.method == kDeflated,
                (entry.flags & kUtf8Flag) != 0,
                static_cast<uint32_t>(entry.crc),
                static_cast<int64_t>(entry.content_bytes),
                header.subspan(begin, entry.stored_bytes)};
    }

    void take_root(ZipDirectory& directory) const {
        if (directory.records.empty()) bad("it has no records");
        const std::string& first = directory.records.front().name;
        const size_t slash = first.find('/');
        if (slash == std::string::npos || slash == 0)
            bad("record '{}' is in no folder; a TorchScript archive has one root folder", first);
        directory.root = first.substr(0, slash);
        const std::string prefix = first.substr(0, slash + 1);
        for (ZipRecord& record : directory.records) {
            if (!record.name.starts_with(prefix))
                bad("record '{}' is not under '{}'", record.name, prefix);
            record.name.erase(0, prefix.size());
        }
    }

    static std::string text(Span bytes) { return std::string(text_in(bytes)); }

    const std::string& path_;
    Span bytes_;
};

constexpr std::string_view kExtraFolder = "extra/";

}  // namespace

ZipDirectory parse_zip(const std::string& path, std::span<const std::byte> bytes) {
    return Parser(path, bytes).parse();
}

Bytes expanded_bytes(const std::string& path, std::span<const std::byte> bytes) {
    return Parser(path, bytes).expanded();
}

ZipArchive::ZipArchive(const std::string& path)
    : file_(path), directory_(parse_zip(path, file_.bytes())) {}

const ZipRecord* ZipArchive::find(std::string_view name) const {
    const auto found = std::find_if(records().begin(), records().end(),
                                    [&](const auto& record) { return record.name == name; });
    return found == records().end() ? nullptr : &*found;
}

std::span<const std::byte> ZipArchive::content(const ZipRecord& record) const {
    if (record.is_deflated)
        fail(ExitCode::kInput,
             "{}: record '{}' is compressed, but must be stored without compression", path(),
             printable(record.name));
    return record.stored;
}

std::optional<std::string_view> ZipArchive::extra(std::string_view name) const {
    const ZipRecord* record = find(std::string(kExtraFolder).append(name));
    if (record == nullptr) return std::nullopt;
    const std::span<const std::byte> bytes = content(*record);
    if (crc32(bytes) != record->crc32)
        fail(ExitCode::kInput, "{}: record '{}' is damaged: its checksum differs", path(),
             printable(record->name));
    return text_in(bytes);
}

}  // namespace dslaunch::storage
