//! libpam, opened at run time, and one PAM transaction at a time.
//!
//! Linux-PAM's own numbers stand here. Nothing is decided: which call follows which is the resolver's.

use super::{Library, copied};
use alloc::boxed::Box;
use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_int, c_void};

/// What PAM calls answer. 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub i32);

impl Code {
    /// It went well.
    pub const SUCCESS: Code = Code(0);
    /// A library or module could not be loaded.
    pub const OPEN_ERR: Code = Code(1);
    /// The system refused something.
    pub const SYSTEM_ERR: Code = Code(4);
    /// No such user.
    pub const USER_UNKNOWN: Code = Code(10);
    /// The account is fine, but its password must be changed first.
    pub const NEW_AUTHTOK_REQD: Code = Code(12);
    /// The conversation failed.
    pub const CONV_ERR: Code = Code(19);
}

/// Flags of the calls.
pub mod flags {
    /// An empty password is none.
    pub const DISALLOW_NULL_AUTHTOK: i32 = 1;
    /// Make credentials.
    pub const ESTABLISH_CRED: i32 = 2;
    /// Take them away.
    pub const DELETE_CRED: i32 = 4;
    /// Change the password only if it has expired.
    pub const CHANGE_EXPIRED_AUTHTOK: i32 = 0x20;
}

/// Items that the application sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Item {
    /// The user.
    User = 2,
    /// The terminal.
    Tty = 3,
    /// The host he comes from.
    RemoteHost = 4,
    /// Who he is there.
    RemoteUser = 8,
}

/// One prompt or message of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// 1 and 2 ask (hidden, shown); 3 and 4 tell (error, information).
    pub style: i32,
    /// Its text.
    pub text: CString,
}

/// Who answers the modules' prompts.
pub trait Conversation {
    /// Puts `messages` to the user and gives each answer with its message's index to `answer`, which copies it.
    /// `false`: there are none, the call fails with PAM_CONV_ERR.
    fn converse(&mut self, messages: &[Message], answer: &mut dyn FnMut(usize, &CStr)) -> bool;
}

/// pam_handle_t; never looked into.
#[repr(C)]
struct Handle([u8; 0]);

#[repr(C)]
struct RawMessage {
    style: c_int,
    text: *const c_char,
}

#[repr(C)]
struct RawResponse {
    text: *mut c_char,
    code: c_int,
}

type Converse = extern "C" fn(c_int, *const *const RawMessage, *mut *mut RawResponse, *mut c_void) -> c_int;

#[repr(C)]
struct RawConversation {
    converse: Converse,
    data: *mut c_void,
}

type WithFlags = unsafe extern "C" fn(*mut Handle, c_int) -> c_int;

/// libpam, opened.
#[derive(Clone, Copy)]
pub struct Libpam {
    library: Library,
    start:
        unsafe extern "C" fn(*const c_char, *const c_char, *const RawConversation, *mut *mut Handle) -> c_int,
    end: unsafe extern "C" fn(*mut Handle, c_int) -> c_int,
    authenticate: WithFlags,
    acct_mgmt: WithFlags,
    chauthtok: WithFlags,
    setcred: WithFlags,
    open_session: WithFlags,
    close_session: WithFlags,
    set_item: unsafe extern "C" fn(*mut Handle, c_int, *const c_void) -> c_int,
    get_item: unsafe extern "C" fn(*const Handle, c_int, *mut *const c_void) -> c_int,
    putenv: unsafe extern "C" fn(*mut Handle, *const c_char) -> c_int,
    getenvlist: unsafe extern "C" fn(*mut Handle) -> *mut *mut c_char,
    strerror: unsafe extern "C" fn(*mut Handle, c_int) -> *const c_char,
}

impl Libpam {
    /// Opens it; the error is the loader's sentence.
    pub fn open() -> Result<Libpam, CString> {
        let library = Library::open(c"libpam.so.0")?;
        // SAFETY: the types are those of security/pam_appl.h and _pam_types.h of Linux-PAM.
        unsafe {
            Ok(Libpam {
                library,
                start: library.symbol(c"pam_start")?,
                end: library.symbol(c"pam_end")?,
                authenticate: library.symbol(c"pam_authenticate")?,
                acct_mgmt: library.symbol(c"pam_acct_mgmt")?,
                chauthtok: library.symbol(c"pam_chauthtok")?,
                setcred: library.symbol(c"pam_setcred")?,
                open_session: library.symbol(c"pam_open_session")?,
                close_session: library.symbol(c"pam_close_session")?,
                set_item: library.symbol(c"pam_set_item")?,
                get_item: library.symbol(c"pam_get_item")?,
                putenv: library.symbol(c"pam_putenv")?,
                getenvlist: library.symbol(c"pam_getenvlist")?,
                strerror: library.symbol(c"pam_strerror")?,
            })
        }
    }

    /// The file it was loaded from; its modules stand in `security/` beside it.
    pub fn path(&self) -> Option<CString> {
        self.library.path_of(c"pam_start")
    }
}

/// One PAM transaction, ended when dropped.
pub struct Transaction {
    libpam: Libpam,
    handle: *mut Handle,
    last: Code,
    /// Boxed twice, so that a thin pointer can travel through libpam; freed when the transaction has ended.
    conversation: *mut Box<dyn Conversation>,
}

impl Transaction {
    /// Begins one.
    pub fn start(
        libpam: Libpam,
        service: &CStr,
        user: &CStr,
        conversation: Box<dyn Conversation>,
    ) -> Result<Transaction, Code> {
        let mut transaction = Transaction {
            libpam,
            handle: core::ptr::null_mut(),
            last: Code::SUCCESS,
            conversation: Box::into_raw(Box::new(conversation)),
        };
        let raw = RawConversation {
            converse,
            data: transaction.conversation.cast(),
        };
        // SAFETY: strings and the conversation's struct live through the call (libpam copies them); the data
        // pointer lives until pam_end.
        let code = unsafe {
            (libpam.start)(
                service.as_ptr(),
                user.as_ptr(),
                &raw const raw,
                &raw mut transaction.handle,
            )
        };
        transaction.checked(code)?;
        Ok(transaction)
    }

    fn checked(&mut self, code: c_int) -> Result<(), Code> {
        self.last = Code(code);
        if code == 0 { Ok(()) } else { Err(self.last) }
    }

    fn call(&mut self, function: WithFlags, flags: i32) -> Result<(), Code> {
        // SAFETY: the handle is live: pam_end runs in Drop only.
        let code = unsafe { function(self.handle, flags) };
        self.checked(code)
    }

    /// Who is this?
    pub fn authenticate(&mut self, flags: i32) -> Result<(), Code> {
        self.call(self.libpam.authenticate, flags)
    }
    /// May he come in?
    pub fn acct_mgmt(&mut self, flags: i32) -> Result<(), Code> {
        self.call(self.libpam.acct_mgmt, flags)
    }
    /// A new password.
    pub fn chauthtok(&mut self, flags: i32) -> Result<(), Code> {
        self.call(self.libpam.chauthtok, flags)
    }
    /// Credentials.
    pub fn setcred(&mut self, flags: i32) -> Result<(), Code> {
        self.call(self.libpam.setcred, flags)
    }
    /// Open the session.
    pub fn open_session(&mut self) -> Result<(), Code> {
        self.call(self.libpam.open_session, 0)
    }
    /// Close it.
    pub fn close_session(&mut self) -> Result<(), Code> {
        self.call(self.libpam.close_session, 0)
    }

    /// Sets a string item.
    pub fn set(&mut self, item: Item, value: &CStr) -> Result<(), Code> {
        // SAFETY: a live handle; libpam copies the string.
        let code = unsafe { (self.libpam.set_item)(self.handle, item as c_int, value.as_ptr().cast()) };
        self.checked(code)
    }

    /// Who the modules say it is.
    pub fn user(&self) -> Result<CString, Code> {
        let mut value = core::ptr::null();
        // SAFETY: a live handle; the string belongs to libpam and is copied at once.
        unsafe {
            match (self.libpam.get_item)(self.handle, Item::User as c_int, &raw mut value) {
                0 => Ok(copied(value.cast())),
                code => Err(Code(code)),
            }
        }
    }

    /// Sets a variable: `NAME=value`.
    pub fn put_variable(&mut self, assignment: &CStr) -> Result<(), Code> {
        // SAFETY: a live handle; libpam copies the string.
        let code = unsafe { (self.libpam.putenv)(self.handle, assignment.as_ptr()) };
        self.checked(code)
    }

    /// The variables that modules and application set: `NAME=value`.
    pub fn variables(&self) -> Vec<CString> {
        let mut out = Vec::new();
        // SAFETY: pam_getenvlist gives null or a list of malloc'ed strings ended by null, which is ours to free.
        unsafe {
            let list = (self.libpam.getenvlist)(self.handle);
            if list.is_null() {
                return out;
            }
            let mut at = list;
            while !(*at).is_null() {
                out.push(copied(*at));
                libc::free((*at).cast());
                at = at.add(1);
            }
            libc::free(list.cast());
        }
        out
    }

    /// libpam's sentence for `code`.
    pub fn sentence(&self, code: Code) -> CString {
        // SAFETY: a live handle or null, which pam_strerror allows; the string is static or libpam's.
        unsafe { copied((self.libpam.strerror)(self.handle, code.0)) }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // SAFETY: ended once; after it nobody calls the conversation, whose box came from into_raw.
        unsafe {
            if !self.handle.is_null() {
                (self.libpam.end)(self.handle, self.last.0);
            }
            drop(Box::from_raw(self.conversation));
        }
    }
}

/// The most messages that one call of a module may bring (PAM_MAX_NUM_MSG).
const MAX_MESSAGES: c_int = 32;

/// libpam's way back to us. The answers are malloc'ed as libpam wants them; the modules wipe and free them.
extern "C" fn converse(
    count: c_int,
    messages: *const *const RawMessage,
    responses: *mut *mut RawResponse,
    data: *mut c_void,
) -> c_int {
    if count <= 0 || count > MAX_MESSAGES || messages.is_null() || responses.is_null() || data.is_null() {
        return Code::CONV_ERR.0;
    }
    let count = count as usize;
    // SAFETY: Linux-PAM gives an array of `count` pointers to messages, and the data pointer that `start` set;
    // the conversation is used by nobody else while the module waits here.
    unsafe {
        let asked: Vec<Message> = (0..count)
            .map(|i| {
                let message = &**messages.add(i);
                Message {
                    style: message.style,
                    text: copied(message.text),
                }
            })
            .collect();
        let answers = libc::calloc(count, size_of::<RawResponse>()).cast::<RawResponse>();
        if answers.is_null() {
            return Code::CONV_ERR.0;
        }
        let conversation = &mut *data.cast::<Box<dyn Conversation>>();
        let mut complete = true;
        let answered = conversation.converse(&asked, &mut |i, text| {
            if i < count && (*answers.add(i)).text.is_null() {
                let copy = libc::strdup(text.as_ptr());
                complete &= !copy.is_null();
                (*answers.add(i)).text = copy;
            }
        });
        if answered && complete {
            *responses = answers;
            return Code::SUCCESS.0;
        }
        for i in 0..count {
            let text = (*answers.add(i)).text;
            if !text.is_null() {
                libc::explicit_bzero(text.cast(), libc::strlen(text));
                libc::free(text.cast());
            }
        }
        libc::free(answers.cast());
        Code::CONV_ERR.0
    }
}
