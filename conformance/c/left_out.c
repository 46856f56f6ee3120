/* Without arguments, prints the names of all global functions. With an argument, the path of a file of such names, looks up
   each of them: the error for a missing function must name the feature that the library was built without. */
#include <anyfn/anyfn.h>

#include <stdio.h>
#include <string.h>

static int print_names(void) {
  TVMFFIAny lister, count, text, index = anyfn_int(-1);
  TVMFFIByteArray read;
  int64_t i;
  if (anyfn_call_global("ffi.FunctionListGlobalNamesFunctor", NULL, 0, &lister) != 0) return 1;
  if (anyfn_call(lister.v_obj, &index, 1, &count) != 0) return 1;
  for (i = 0; i < count.v_int64; ++i) {
    index = anyfn_int(i);
    if (anyfn_call(lister.v_obj, &index, 1, &text) != 0 || !anyfn_get_str(&text, &read)) return 1;
    printf("%.*s\n", (int)read.size, read.data);
    anyfn_release(&text);
  }
  anyfn_release(&lister);
  return 0;
}

int main(int argc, char** argv) {
  char name[512];
  int missing = 0, unexplained = 0;
  FILE* names;
  if (argc < 2) return print_names();
  names = fopen(argv[1], "r");
  if (names == NULL) return 1;
  while (fgets(name, sizeof name, names) != NULL) {
    TVMFFIObjectHandle function, error;
    name[strcspn(name, "\n")] = '\0';
    if (anyfn_get_global(name, &function) == 0) {
      anyfn_release_object(function);
      continue;
    }
    ++missing;
    error = anyfn_take_error();
    if (strstr(anyfn_error_message(error).data, "; this runtime was built without the feature `") == NULL) {
      printf("%s\n", anyfn_error_message(error).data);
      ++unexplained;
    }
    anyfn_release_object(error);
  }
  (void)fclose(names);
  printf("%d functions are left out, %d without an explanation\n", missing, unexplained);
  return missing == 0 || unexplained > 0;
}
