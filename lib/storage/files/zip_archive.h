// TorchScript archives: a zip whose records lie under one root folder, weights stored plainly and
// aligned to 64 bytes, code perhaps deflated, and files of the user's under ROOT/extra/. Reads by
// mapping; writes a copy with more extra files. Views live as long as the ZipArchive (see
// mapped_file.h about files that shrink). Threads: const, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/files/mapped_file.h"

namespace dslaunch::storage {

struct ZipRecord {
    std::string name;  // without the root: "data/0", "extra/ds_config.json"
    bool deflated = false;
    bool utf8 = true;  // the writer's mark on the name
    uint32_t crc32 = 0;
    int64_t content_bytes = 0;
    std::span<const std::byte> stored;  // the bytes that lie in the file: the content unless
                                        // deflated
};

struct ZipDirectory {
    std::string root;                // "train" in "train/data/0"
    std::vector<ZipRecord> records;  // they come in the order of their bytes in the file
};

// Throws Error{kInput} that begins with PATH unless BYTES are one whole zip: directory at the end,
// local headers that agree with it, records inside the file that do not overlap, unique names under
// one root, stored or deflated, not encrypted, one disk.
[[nodiscard]] ZipDirectory parse_zip(const std::string& path, std::span<const std::byte> bytes);

// Returns the bytes of all records after they are expanded, as the zip's directory says. Throws as
// parse_zip() if the directory is damaged; does not check where its records lie.
[[nodiscard]] Bytes expanded_bytes(const std::string& path, std::span<const std::byte> bytes);

class ZipArchive {
  public:
    // Throws Error{kInput} as MappedFile and parse_zip do. Checksums are not computed here.
    explicit ZipArchive(const std::string& path);

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] const std::string& root() const { return directory_.root; }
    [[nodiscard]] const std::vector<ZipRecord>& records() const { return directory_.records; }
    // Returns null if there is no such record. NAME is without the root.
    [[nodiscard]] const ZipRecord* find(std::string_view name) const;

    // Returns the record's content in the mapping; 64-byte aligned if PyTorch or pack_archive wrote
    // it. Throws Error{kInput} if it is deflated. RECORD: one of records(). Checksum not compared.
    [[nodiscard]] std::span<const std::byte> content(const ZipRecord& record) const;

    // Returns the content of extra/NAME, its checksum compared; nothing if there is none. Throws
    // Error{kInput} if it is deflated or damaged.
    [[nodiscard]] std::optional<std::string_view> extra(std::string_view name) const;

  private:
    MappedFile file_;
    ZipDirectory directory_;
};

struct PackOptions {
    // Sizes and offsets from here on use zip64 fields; smaller only for tests.
    uint64_t zip64_from = 0xFFFFFFFF;
};

// Writes a copy of IN at OUT (they may be one path) in which extra/NAME holds the content given,
// replaced or added; all else is kept. Stored and 64-byte aligned; OUT is the old file or the whole
// new one, durably. Throws Error{kInput} for a bad IN or NAME (empty, a "." or ".." or empty part,
// control characters, over 200 bytes), Error{kDisk} when writing fails. Blocks on the disk.
void pack_archive(const std::string& in, const std::string& out,
                  const std::map<std::string, std::string>& extras,
                  const PackOptions& options = {});

}  // namespace dslaunch::storage
