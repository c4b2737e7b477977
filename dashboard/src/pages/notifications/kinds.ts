// The fields of each kind of channel, in the order of the form. The server checks them as well.
import type { ChannelKind } from "../../api/schema";

export type ChannelField = { name: string; label: string; needed?: true; secret?: true; help?: string; placeholder?: string; choices?: string[]; list?: true };

const WEBHOOK_URL: ChannelField = { name: "webhook_url", label: "Address of the webhook", needed: true, secret: true, placeholder: "https://" };
const RELAY: ChannelField = { name: "url", label: "Relay", help: "an address in place of the service; empty: the service", placeholder: "https://" };
const REGION: ChannelField = { name: "region", label: "Region", choices: ["us", "eu"] };

export const KINDS: Record<ChannelKind, ChannelField[]> = {
  slack: [WEBHOOK_URL],
  teams: [WEBHOOK_URL],
  discord: [WEBHOOK_URL],
  webhook: [
    { name: "url", label: "Address", needed: true, placeholder: "https://example.com/hook" },
    { name: "secret", label: "Key", needed: true, secret: true, help: "it signs each message" },
  ],
  mail: [
    { name: "host", label: "Mail server", needed: true, placeholder: "smtp.example.com" },
    { name: "port", label: "Port", help: "empty: the usual one" },
    { name: "tls", label: "TLS", choices: ["starttls", "tls", "none"] },
    { name: "user", label: "User" },
    { name: "password", label: "Password", secret: true },
    { name: "from", label: "From", needed: true, placeholder: "jobs@example.com" },
    { name: "to", label: "To", needed: true, list: true, help: "with commas" },
  ],
  telegram: [
    { name: "bot_token", label: "Token of the bot", needed: true, secret: true },
    { name: "chat_id", label: "Chat", needed: true },
    RELAY,
  ],
  pagerduty: [{ name: "routing_key", label: "Routing key", needed: true, secret: true }, REGION, RELAY],
  opsgenie: [{ name: "api_key", label: "API key", needed: true, secret: true }, REGION, RELAY],
  twilio: [
    { name: "account_sid", label: "Account SID", needed: true },
    { name: "auth_token", label: "Auth token", needed: true, secret: true },
    { name: "from", label: "From", needed: true, placeholder: "+491701234567" },
    { name: "to", label: "To", needed: true, list: true },
    RELAY,
  ],
  apprise: [{ name: "apprise_url", label: "Address of apprise", needed: true, secret: true, help: "for administrators of the instance, of a scheme that the servers allow", placeholder: "ntfy://topic" }],
};
