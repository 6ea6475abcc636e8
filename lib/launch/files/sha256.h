// SHA-256 over bytes that come in pieces.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace dslaunch::launch {

class Sha256 {
  public:
    Sha256();
    void add(const void* data, size_t length);
    void add(std::string_view bytes) { add(bytes.data(), bytes.size()); }
    // The hash of what was added, 32 bytes; begins anew.
    [[nodiscard]] std::string raw();
    // The hash as 64 hexadecimal digits.
    [[nodiscard]] std::string hex();

  private:
    std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace dslaunch::launch
