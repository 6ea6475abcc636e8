// Makes a program believe that its C library is an old one. This library must be loaded before the
// C library.
extern "C" const char* gnu_get_libc_version() noexcept {
    return "2.17";
}
