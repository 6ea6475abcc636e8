#include "launcher/hosts/bundle_archive.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/text/json.h"
#include "launch/files/file_facts.h"
#include "launch/files/sha256.h"
#include "launch/files/ustar.h"
#include "storage/files/atomic_file.h"

namespace dslaunch::launcher {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kFormat = "dslaunch-bundle-1";
constexpr int kCompressionLevel = 3;
constexpr size_t kBlockBytes = 1U << 20;
constexpr int64_t kManifestBytesMax = 64 << 20;

// Writes zstd-compressed bytes into a file.
class Compressor {
  public:
    explicit Compressor(storage::AtomicFile& out)
        : context_(ZSTD_createCCtx(), ZSTD_freeCCtx), out_(out) {
        ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kCompressionLevel);
        ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
    }
    void write(std::string_view bytes) { run(bytes, ZSTD_e_continue); }
    void finish() { run({}, ZSTD_e_end); }
    [[nodiscard]] int64_t bytes_out() const { return bytes_out_; }

  private:
    void run(std::string_view bytes, ZSTD_EndDirective directive) {
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        for (size_t left = 1; left != 0 || in.pos < in.size;) {
            ZSTD_outBuffer out{block_.data(), block_.size(), 0};
            left = ZSTD_compressStream2(context_.get(), &out, &in, directive);
            if (ZSTD_isError(left)) fail(ExitCode::kSetup, "zstd: {}", ZSTD_getErrorName(left));
            out_.write(std::string_view(block_.data(), out.pos));
            bytes_out_ += static_cast<int64_t>(out.pos);
            if (directive == ZSTD_e_continue && in.pos == in.size) return;
        }
    }

    std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context_;
    storage::AtomicFile& out_;
    std::string block_ = std::string(kBlockBytes, '\0');
    int64_t bytes_out_ = 0;
};

// Reads the decompressed bytes in order.
class Decompressor {
  public:
    explicit Decompressor(const std::string& path)
        : path_(path),
          fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)),
          context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
        if (!fd_.valid()) fail(ExitCode::kInput, "{}: {}", path, errno_text(errno));
    }
    // The next LENGTH bytes, or fewer at the end.
    [[nodiscard]] std::string read(size_t length) {
        std::string bytes(length, '\0');
        ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
        while (out.pos < out.size) {
            if (in_.pos == in_.size && !refill()) break;
            const size_t before = in_.pos + out.pos;
            const size_t status = ZSTD_decompressStream(context_.get(), &out, &in_);
            if (ZSTD_isError(status)) {
                fail(ExitCode::kInput, "{} is no bundle, or damaged: {}", path_,
                     ZSTD_getErrorName(status));
            }
            if (in_.pos + out.pos == before && in_.pos < in_.size) break;
        }
        bytes.resize(out.pos);
        return bytes;
    }

  private:
    bool refill() {
        const ssize_t n = read_full(fd_.get(), std::as_writable_bytes(std::span(block_)));
        if (n < 0) fail(ExitCode::kInput, "{}: {}", path_, errno_text(static_cast<int>(-n)));
        in_ = {block_.data(), static_cast<size_t>(n), 0};
        return n > 0;
    }

    std::string path_;
    UniqueFd fd_;
    std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context_;
    std::vector<char> block_ = std::vector<char>(kBlockBytes);
    ZSTD_inBuffer in_{nullptr, 0, 0};
};

// lib/dslaunch/NAME, as the dynamic linker's names are: libx.so, libx.so.1, ld-linux.so.2.
bool is_library_name(std::string_view name) {
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '_' || c == '-' || c == '+';
    });
    const size_t at = name.find(".so");
    return plain && at != std::string_view::npos && at > 0 && name.front() != '.' &&
           (at + 3 == name.size() || name[at + 3] == '.');
}

// A relative path whose components are no `.`, `..` or empty, and whose first is not hidden: below
// the folder that --to names, .ssh or .bashrc would be more than a file.
bool is_user_path(std::string_view path) {
    if (path.starts_with('.')) return false;
    for (size_t at = 0; at <= path.size();) {
        const size_t end = std::min(path.find('/', at), path.size());
        const std::string_view part = path.substr(at, end - at);
        if (part.empty() || part == "." || part == "..") return false;
        at = end + 1;
    }
    return true;
}

// The places and names that a bundle has, and no other.
void check_name(const std::string& name, const std::string& path) {
    constexpr std::string_view kLibraries = "lib/dslaunch/", kFiles = "files/";
    const std::string_view text = name;
    const bool is_ours =
        name == "bin/dslaunch" || name == "bin/dsworker" || name == "bin/libdsl_cuda.so" ||
        (text.starts_with(kLibraries) && is_library_name(text.substr(kLibraries.size()))) ||
        (text.starts_with(kFiles) && is_user_path(text.substr(kFiles.size())));
    if (is_ours) return;
    fail(ExitCode::kInput,
         "{}: `{}` is no file of a bundle: it has dslaunch's programs in bin/, libraries in "
         "lib/dslaunch/, and files/, none of them hidden",
         path, printable(name));
}

std::string manifest_text(const std::vector<BundleEntry>& entries) {
    JsonWriter json;
    json.begin_object().field("format", kFormat).field("version", DSL_VERSION);
    json.key("files").begin_array();
    for (const BundleEntry& entry : entries) {
        json.begin_object().field("name", entry.name).field("bytes", entry.bytes);
        json.field("mode", entry.mode).field("sha256", entry.sha256).end_object();
    }
    json.end_array().end_object();
    return json.text() + "\n";
}

std::map<std::string, BundleEntry> parse_manifest(const std::string& text,
                                                  const std::string& path) {
    std::map<std::string, BundleEntry> entries;
    try {
        const auto json = nlohmann::json::parse(text);
        if (json.at("format") != kFormat) fail(ExitCode::kInput, "{}: another format", path);
        for (const auto& file : json.at("files")) {
            BundleEntry entry{file.at("name"), file.at("bytes"), file.at("mode"),
                              file.at("sha256")};
            check_name(entry.name, path);
            entries.emplace(entry.name, entry);
        }
    } catch (const nlohmann::json::exception& error) {
        fail(ExitCode::kInput, "{}: its {} is damaged: {}", path, kManifest,
             printable(error.what()));
    }
    return entries;
}

void append_file(Compressor& out, const BundleFile& file, const BundleEntry& entry) {
    out.write(launch::ustar_header({entry.name, entry.bytes, entry.mode, 0}));
    const UniqueFd in(::open(file.local_path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!in.valid()) fail(ExitCode::kInput, "{}: {}", file.local_path, errno_text(errno));
    std::vector<std::byte> block(kBlockBytes);
    launch::Sha256 hash;
    int64_t bytes = 0;
    for (ssize_t n = 1; n > 0;) {
        n = read_full(in.get(), block);
        if (n < 0) {
            fail(ExitCode::kInput, "{}: {}", file.local_path, errno_text(static_cast<int>(-n)));
        }
        const std::string_view piece(reinterpret_cast<const char*>(block.data()),
                                     static_cast<size_t>(n));
        hash.add(piece);
        out.write(piece);
        bytes += n;
    }
    if (bytes != entry.bytes || hash.hex() != entry.sha256) {
        fail(ExitCode::kInput, "{}: it changed while it was read", file.local_path);
    }
    out.write(std::string(launch::ustar_padding(bytes), '\0'));
}

// Reads ENTRY from IN, checks it, and writes it into FOLDER.
void extract(Decompressor& in, const BundleEntry& entry, const std::string& folder) {
    const std::string path = folder + "/" + entry.name;
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    const UniqueFd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                              entry.mode == 0755 ? 0755 : 0644));
    if (error || !out.valid()) {
        fail(ExitCode::kDisk, "{}: {}", path, error ? error.message() : errno_text(errno));
    }
    launch::Sha256 hash;
    for (int64_t left = entry.bytes; left > 0;) {
        const auto want = static_cast<size_t>(std::min<int64_t>(left, kBlockBytes));
        const std::string bytes = in.read(want);
        if (bytes.size() != want) fail(ExitCode::kInput, "the bundle is cut off in {}", entry.name);
        hash.add(bytes);
        const int status = write_full(out.get(), bytes);
        if (status != 0) fail(ExitCode::kDisk, "{}: {}", path, errno_text(-status));
        left -= static_cast<int64_t>(bytes.size());
    }
    if (hash.hex() != entry.sha256) {
        fail(ExitCode::kInput, "{} in the bundle is not what its manifest says", entry.name);
    }
    static_cast<void>(in.read(launch::ustar_padding(entry.bytes)));
}

}  // namespace

int64_t write_bundle(const std::string& path, std::vector<BundleFile> files) {
    std::sort(files.begin(), files.end(),
              [](const BundleFile& a, const BundleFile& b) { return a.name < b.name; });
    std::vector<BundleEntry> entries;
    int64_t bytes_all = 0;
    launch::HashCache cache(launch::HashCache::default_path());
    for (const BundleFile& file : files) {
        check_name(file.name, file.local_path);
        struct stat status {};
        if (::stat(file.local_path.c_str(), &status) != 0) {
            fail(ExitCode::kInput, "{}: {}", file.local_path, errno_text(errno));
        }
        if (!entries.empty() && entries.back().name == file.name) {
            fail(ExitCode::kInput, "two files would be called {} in the bundle", file.name);
        }
        const bool runs = (status.st_mode & 0100) != 0;
        entries.push_back({file.name, status.st_size, runs ? 0755 : 0644,
                           launch::hash_whole_file(file.local_path, cache, [] {})});
        bytes_all += status.st_size;
    }
    cache.save();
    storage::AtomicFile out(path, Bytes{bytes_all / 3});  // about the size of compressed programs
    Compressor compressor(out);
    const std::string manifest = manifest_text(entries);
    const auto length = static_cast<int64_t>(manifest.size());
    compressor.write(launch::ustar_header({kManifest, length, 0644, 0}) + manifest +
                     std::string(launch::ustar_padding(length), '\0'));
    for (size_t i = 0; i < files.size(); ++i) append_file(compressor, files[i], entries[i]);
    compressor.write(launch::ustar_end());
    compressor.finish();
    out.commit();
    return compressor.bytes_out();
}

std::vector<BundleEntry> unpack_bundle(const std::string& path, const std::string& folder) {
    Decompressor in(path);
    const auto first = launch::parse_ustar_header(in.read(launch::kUstarBlockBytes));
    if (!first || first->name != kManifest || first->bytes > kManifestBytesMax) {
        fail(ExitCode::kInput, "{} is no bundle: it does not begin with {}", path, kManifest);
    }
    const std::string text = in.read(static_cast<size_t>(first->bytes));
    static_cast<void>(in.read(launch::ustar_padding(first->bytes)));
    auto expected = parse_manifest(text, path);
    std::vector<BundleEntry> entries;
    while (const auto header = launch::parse_ustar_header(in.read(launch::kUstarBlockBytes))) {
        const auto found = expected.find(header->name);
        if (found == expected.end() || found->second.bytes != header->bytes) {
            fail(ExitCode::kInput,
                 "{}: `{}` is not in its manifest with that size, or is twice in "
                 "it",
                 path, printable(header->name));
        }
        extract(in, found->second, folder);
        entries.push_back(found->second);
        expected.erase(found);
    }
    if (!expected.empty()) {
        fail(ExitCode::kInput, "{}: {} is missing in it", path, printable(expected.begin()->first));
    }
    return entries;
}

}  // namespace dslaunch::launcher
