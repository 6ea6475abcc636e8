// SHA-256, by libcrypto.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace dslaunch::launch {

// SHA-256 over bytes that come in pieces.
class Sha256 {
  public:
    Sha256();
    // Add bytes to the hash.
    void add(const void* data, size_t length);
    void add(std::string_view bytes) { add(bytes.data(), bytes.size()); }
    // Returns the hash of all added bytes, 32 bytes, and starts over.
    [[nodiscard]] std::string raw();
    // Returns the hash as 64 hexadecimal digits.
    [[nodiscard]] std::string hex();

  private:
    std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace dslaunch::launch
