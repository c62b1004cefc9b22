# A 32-bit program without any library: _start;spin32. Prints "ready" and ends itself after two minutes.
        .text
        .globl  _start, spin32
        .type   _start, @function
        .type   spin32, @function
_start:
        push    %ebp
        mov     %esp, %ebp
        mov     $27, %eax               # alarm(120)
        mov     $120, %ebx
        int     $0x80
        mov     $4, %eax                # write(1, ready, 6)
        mov     $1, %ebx
        mov     $ready, %ecx
        mov     $6, %edx
        int     $0x80
        call    spin32
        hlt
        .size   _start, . - _start
spin32:
        push    %ebp
        mov     %esp, %ebp
1:      inc     %eax
        jmp     1b
        .size   spin32, . - spin32
        .section .rodata
ready:  .ascii  "ready\n"
        .section .note.GNU-stack, "", @progbits
